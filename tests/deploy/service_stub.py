"""Stands in for systemctl in tests: starts the command of a unit as `Type=notify` does, and stops it.

python service_stub.py COMMAND [UNIT...], with UNITS (their directory), RUN (a directory for process ids) and ROOT (put
before the absolute paths of a unit) in the environment.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

UNITS, RUN, ROOT = (Path(os.environ.get(name, ".")) for name in ("UNITS", "RUN", "ROOT"))
WAIT_S = 60


def command_of(unit: str) -> tuple[list[str], str]:
    """(command, working directory) of a unit, `%i` replaced."""
    name, _, instance = unit.partition("@")
    text = (UNITS / f"{name}{'@' if instance else ''}.service").read_text().replace("%i", instance)
    found = dict(re.findall(r"^(ExecStart|WorkingDirectory)=(.*)$", text, re.MULTILINE))
    words = found["ExecStart"].split()
    return [f"{ROOT}{word}" if word.startswith("/") else word for word in words], f"{ROOT}{found['WorkingDirectory']}"


def start(unit: str) -> None:
    """Start it, and wait until it says that it is ready."""
    command, folder = command_of(unit)
    os.makedirs(folder, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,  # a short path: that of a socket has at most 107 bytes
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
        (RUN / f"{unit}.log").open("ab") as lines,
    ):
        address = Path(place) / "notify"
        listener.bind(str(address))
        listener.settimeout(WAIT_S)
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            env={**os.environ, "NOTIFY_SOCKET": str(address)},
            start_new_session=True,
        )
        (RUN / f"{unit}.pid").write_text(str(process.pid))
        while b"READY=1" not in listener.recv(4096):
            pass


def stop(unit: str) -> None:
    """SIGTERM, and wait for its end."""
    path = RUN / f"{unit}.pid"
    if not path.exists():
        return
    pid = int(path.read_text())
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + WAIT_S
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    path.unlink()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def main() -> None:
    command, *words = sys.argv[1:]
    units = [word for word in words if not word.startswith("-")]
    if command not in ("daemon-reload", "enable", "start", "stop", "restart"):
        sys.exit(f"no command {command}")
    for unit in units:
        if command in ("stop", "restart"):
            stop(unit)
        if command in ("enable", "start", "restart"):
            start(unit)


if __name__ == "__main__":
    main()
