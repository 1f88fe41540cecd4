"""The commands of docs/services.md run as they stand, below a directory and with free ports; see service_stub.py."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.processes import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "services.md"
PORTS = ("9876", "10911", "10931")
INSTALLING = re.compile(r"^(python3 -m |/opt/twinlog/bin/pip )")  # `make wheel` does these
HEAD = "set -eu\n"
SEND = "echo tea %s | twinlog send -t Orders -n 127.0.0.1:9876\n"
CONSUME = "twinlog consume -t Orders -g readers -n 127.0.0.1:9876 --max %d"


def blocks() -> list[str]:
    found = re.findall(r"^( *)```sh\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


@pytest.mark.timeout(240)
def test_a_pair_is_installed_upgraded_backed_up_and_restored(tmp_path: Path):
    install, wheel, replica, master, back, backup, restore = blocks()
    assert INSTALLING.match(wheel)
    script = "\n".join(
        [
            install,
            SEND % "before",
            replica,
            master,
            back,
            SEND % "upgraded",
            backup,
            SEND % "after the backup",
            restore,
            SEND % "restored",  # it is a master
            CONSUME % 3 + " > served.txt",
        ]
    )
    script = "\n".join(line for line in script.splitlines() if not INSTALLING.match(line))
    moves = {port: str(free_port(beside=(-2, 1))) for port in PORTS}
    tools = make_tools(tmp_path)
    for path in ("conf", "deploy"):
        subprocess.run(["cp", "-r", str(ROOT / path), str(tmp_path)], check=True)
    for path in (*tmp_path.glob("conf/2m-2s-sync/*"), None):
        text = path.read_text() if path else script
        for old, new in moves.items():
            text = re.sub(rf"\b{old}\b", new, text)
        if path:
            path.write_text(text)
        else:
            script = text
    script = re.sub(r"(?<![\w.])/(etc|opt|var)/", rf"{tmp_path}/\1/", script)
    for place in ("etc/systemd/system", "var/lib/twinlog", "var/backups", "run"):
        (tmp_path / place).mkdir(parents=True)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "UNITS": str(tmp_path / "etc/systemd/system"),
        "RUN": str(tmp_path / "run"),
        "ROOT": str(tmp_path),
    }
    try:
        done = subprocess.run(
            ["bash", "-c", HEAD + script], cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr + logs(tmp_path)
    finally:
        for path in (tmp_path / "run").glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)
    served = (tmp_path / "served.txt").read_text()
    assert sorted(served.splitlines()) == ["tea before", "tea restored", "tea upgraded"]


def make_tools(folder: Path) -> Path:
    tools = folder / "opt" / "twinlog" / "bin"
    tools.mkdir(parents=True)
    for name, command in {
        "twinlog": f"{sys.executable} -m twinlog.cli.main",
        "systemctl": f"{sys.executable} {Path(__file__).with_name('service_stub.py')}",
        "useradd": "true",
        "chown": "true",
    }.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    return tools


def logs(folder: Path) -> str:
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in (folder / "run").glob("*.log"))
