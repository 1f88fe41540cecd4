"""The commands of docs/accounts.md protect a cluster: a shell runs them as they stand, with free ports."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.processes import free_port

PAGE = Path(__file__).parents[1] / "docs" / "accounts.md"
CHECKS = """
unset ROCKETMQ_ACCESS_KEY ROCKETMQ_SECRET_KEY
! twinlog consume -t orders-tea --max 1 2> stranger.txt
"""
HEAD = """set -eu
trap 'kill -9 $(jobs -p)' EXIT
wait_for() {
    for i in $(seq 400); do grep -qs "$1" "$2" && return; sleep 0.1; done
    echo "no $1 in $2"; cat *.log; exit 1
}
"""


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


def commands(block: str) -> list[str]:
    """The commands of a block; a here-document belongs to its command."""
    return re.findall(r"^(?:.*<<END\n(?:.*\n)*?END|.+)$", block, re.MULTILINE)


@pytest.mark.timeout(120)
def test_ten_commands_protect_a_cluster(tmp_path: Path):
    setup, use = blocks()
    assert len(commands(setup)) == 10
    waits = re.sub(r"(> (\w+\.log) 2>&1 &)$", r"\1\nwait_for ready \2", setup, flags=re.MULTILINE)
    script = "\n".join([HEAD, waits, "wait_for 'orders[*]' replica/config/accounts.json", use, CHECKS])
    for port in ("9876", "10911", "10921"):
        script = script.replace(port, str(free_port(beside=(-2, 1))))
    tool = tmp_path / "bin" / "twinlog"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m twinlog.cli.main "$@"\n')
    tool.chmod(0o755)
    names = re.search(r"namesrvAddr=(\S+)", script)
    assert names is not None
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "NAMESRV_ADDR": names[1]}
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        printed, errors = shell.communicate(timeout=110)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # servers too, if the shell did not come to its end
    assert shell.returncode == 0, f"{printed[-3000:]}\n{errors[-3000:]}"
    assert "one tea" in printed and "secret" not in printed
    assert "username cannot be null" in (tmp_path / "protected" / "stranger.txt").read_text()
