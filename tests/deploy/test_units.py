"""The units of deploy/systemd: systemd accepts them, and the servers tell it what it waits for."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.processes import free_port

from twinlog.cli.shared.service_manager import ServiceManager

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
TWINLOG = "/opt/twinlog/bin/twinlog"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path):
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(TWINLOG, shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], text=True, capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="no logrotate on this machine")
def test_logrotate_accepts_the_file():
    done = subprocess.run(["logrotate", "-d", str(UNITS / "twinlog.logrotate")], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(120)
def test_a_server_says_that_it_is_ready_turns_and_stops(tmp_path: Path):
    """While it is stopped (SIGSTOP) it says nothing: systemd would start it again."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}
        conf = tmp_path / "namesrv.conf"
        conf.write_text(f"listenPort={free_port()}\nkvConfigPath={tmp_path}/kv.json\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "twinlog.cli.main", "namesrv", "-c", str(conf)], env=environment, cwd=tmp_path
        )
        try:
            heard = [manager.recv(4096).decode() for _ in range(5)]
            assert any(text.startswith("READY=1\nSTATUS=twinlog namesrv ready on") for text in heard)
            assert heard.count("WATCHDOG=1") == 4
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:  # what was under way
                    manager.recv(4096)
            manager.settimeout(1)
            with pytest.raises(TimeoutError):
                manager.recv(4096)
            process.send_signal(signal.SIGCONT)
            manager.settimeout(60)
            process.send_signal(signal.SIGTERM)
            while not manager.recv(4096).startswith(b"STOPPING=1"):
                pass
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_only_the_process_that_is_meant_watches():
    other = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}
    assert ServiceManager.of(dict(other), 7).watchdog_s == 3
    assert ServiceManager.of(dict(other), 8).watchdog_s is None


@pytest.mark.parametrize("value", ["", "0", "-1", "soon", "1.5"])
def test_a_watchdog_time_that_is_none_is_ignored(value: str):
    assert ServiceManager.of({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": value}, 1).watchdog_s is None


def test_children_do_not_inherit_the_address():
    environment = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/root"}
    ServiceManager.of(environment, 1)
    assert environment == {"HOME": "/root"}


def test_a_manager_that_is_gone_does_no_harm(tmp_path: Path):
    ServiceManager(str(tmp_path / "nobody")).ready("ready")


@pytest.mark.skipif(not Path("/run/systemd/system").exists(), reason="systemd does not run this machine")
@pytest.mark.timeout(120)
def test_systemd_starts_a_name_server_by_its_unit(tmp_path: Path):
    name = f"twinlog-test-{os.getpid()}"
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort={free_port()}\nkvConfigPath={tmp_path}/kv.json\n")
    command = [sys.executable, "-m", "twinlog.cli.main", "namesrv", "-c", str(conf)]
    start = ["systemd-run", "--unit", name, "-p", "Type=notify", "-p", "WatchdogSec=30", *command]
    try:
        subprocess.run(start, check=True, capture_output=True, timeout=60)  # it waits for READY=1
        state = subprocess.run(["systemctl", "is-active", name], text=True, capture_output=True)
        assert state.stdout.strip() == "active"
    finally:
        subprocess.run(["systemctl", "stop", name], capture_output=True)
