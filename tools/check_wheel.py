"""Build the wheel, install it into an empty environment, and run it there: what a user gets is what was tested."""

import pathlib
import select
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
READY_SECONDS_MAX = 30


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="twinlog-wheel-") as name:
        folder = pathlib.Path(name)
        wheel = build_wheel(folder / "dist")
        twinlog = install(wheel, folder / "venv")
        version = run(twinlog, "--version", cwd=folder).strip()
        print(f"{wheel.name}: {version}")
        ready = start_and_stop(twinlog, "dev", "--port", "0", "--namesrv-port", "0", cwd=folder)
        print(f"{wheel.name}: {ready}")


def build_wheel(out: pathlib.Path) -> pathlib.Path:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, ROOT, cwd=ROOT)
    (wheel,) = out.glob("*.whl")
    return wheel


def install(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    run(sys.executable, ROOT / "tools" / "make_venv.py", folder, cwd=ROOT)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return folder / "bin" / "twinlog"


def start_and_stop(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    """The first line the command prints; it must then end by itself on SIGTERM."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not select.select([process.stdout], [], [], READY_SECONDS_MAX)[0]:
                sys.exit(f"{shown(command)} printed nothing within {READY_SECONDS_MAX} s")
            ready = process.stdout.readline().strip()
            process.send_signal(signal.SIGTERM)
            code = process.wait(READY_SECONDS_MAX)
        finally:
            process.kill()
    if not ready or code != 0:
        sys.exit(f"{shown(command)} printed {ready!r} and ended with {code}, expected a ready line and 0")
    return ready


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shown(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def shown(command: tuple[str | pathlib.Path, ...]) -> str:
    return " ".join(map(str, command))


if __name__ == "__main__":
    main()
