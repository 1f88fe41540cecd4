import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request

import pytest


def run(*arguments, **more):
    command = [sys.executable, "-m", "twinlog.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, **more)


def test_the_overview_lists_commands_without_importing_them():
    program = (
        "import sys; from twinlog.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('imported' if 'twinlog.nameserver' in sys.modules else 'lazy')"
    )
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, timeout=30)
    assert "namesrv" in done.stdout and "Run a name server." in done.stdout
    assert done.stdout.splitlines()[-1] == "lazy"


def test_the_version_is_printed():
    assert run("--version").stdout.startswith("twinlog 0.")


def test_an_unknown_command_is_an_error():
    done = run("nope")
    assert done.returncode == 2 and "nope" in done.stderr


def test_a_name_server_prints_that_it_is_ready_serves_metrics_and_stops_on_sigterm(tmp_path):
    (tmp_path / "n.conf").write_text(f"bindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\nnoSuchKey=1\n")
    command = [sys.executable, "-m", "twinlog.cli.main", "namesrv", "-c", str(tmp_path / "n.conf")]
    command += ["--port", "0", "--metrics-port", "0"]
    few_files = ["bash", "-c", 'ulimit -S -n 64; exec "$@"', "-", *command]
    with subprocess.Popen(few_files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("twinlog namesrv ready on 127.0.0.1:")
            warning, metrics = process.stderr.readline(), process.stderr.readline()
            assert "n.conf:3: noSuchKey is unknown, ignored" in warning
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] > 64  # as many as it may have
            port = metrics.split("address=127.0.0.1:")[1].split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                assert b"twinlog_namesrv_brokers 0.0" in answer.read()
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert process.wait(10) == 0
            assert time.monotonic() - began < 3
            assert process.stdout.read() == ""
        finally:
            process.kill()


def test_bad_settings_refuse_to_start_with_file_and_line(tmp_path):
    (tmp_path / "n.conf").write_text("# x\nlistenPort=many\n")
    done = run("namesrv", "-c", str(tmp_path / "n.conf"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "twinlog: n.conf:2: listenPort=many is not an integer; write digits only, without a unit\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-c", "/no/such.conf"], "/no/such.conf: No such file"),
        (["--log-level", "loud"], "log level 'loud' is unknown"),
    ],
)
def test_bad_options_are_reported_in_one_line(arguments, message):
    done = run("namesrv", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"twinlog: {message}") and done.stderr.count("\n") == 1


def test_all_settings_can_be_printed():
    done = run("namesrv", "--print", "--port", "7")
    assert "listenPort=7\n" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", "> /dev/full"])
def test_a_server_runs_and_stops_without_standard_streams(tmp_path, closed):
    (tmp_path / "n.conf").write_text(f"bindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\nlistenPort=0\n")
    words = [sys.executable, "-m", "twinlog.cli.main", "namesrv", "-c", str(tmp_path / "n.conf")]
    with subprocess.Popen(["bash", "-c", f'exec "$@" {closed}', "-", *words], stderr=subprocess.PIPE) as process:
        try:
            while not any(name.startswith("socket:") for name in open_files(process.pid)):
                assert process.poll() is None
                time.sleep(0.01)
            assert all(not name.startswith("socket:") for name in open_files(process.pid, below=3))
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) in (0, -signal.SIGTERM)  # the latter when its handler was not there yet
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


def open_files(pid: int, below: int = 1 << 30) -> list[str]:
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        if int(number) < below:
            with contextlib.suppress(FileNotFoundError):  # closed since
                found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found
