"""The blocks of docs/tutorial-sync.md do what they say: a shell and Python run them as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.processes import free_port

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial-sync.md"
HEAD = """set -eu
trap 'kill -9 $(jobs -p)' EXIT
wait_for() {
    for i in $(seq 400); do grep -qs "$1" "$2" && return; sleep 0.1; done
    echo "no $1 in $2"; cat *.log; exit 1
}
ticks() { twinlog pipeline status copies --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["tick"])'; }
two_ticks() {
    for i in $(seq 400); do test -f copies/_status/latest.json && break; sleep 0.2; done
    before=$(ticks)
    for i in $(seq 400); do test $(ticks) -gt $((before + 1)) && return; sleep 0.2; done
    echo "no ticks"; cat *.log; exit 1
}
"""


def script() -> str:
    """All blocks in their order; a server is waited for before the next command."""
    words = [HEAD]
    for kind, block in re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if kind == "python":
            words.append(f"python3 - > before.txt <<'END'\n{block}END")
        else:
            block = re.sub(r"(> ((?!sync)\w+\.log) 2>&1 &)$", r"\1\nwait_for ready \2", block, flags=re.MULTILINE)
            words.append(re.sub(r"^sleep \d+$", "two_ticks", block, flags=re.MULTILINE))
    text = "\n".join(words)
    for port in ("9876", "10911", "10921"):
        text = text.replace(port, str(free_port(beside=(-2, 1))))
    return text.replace("pipeline sync ", "pipeline sync --master 'local[2]' --conf spark.ui.enabled=false ")


def test_the_tutorial_ends_with_a_broker_on_the_copy_that_serves_every_message(tmp_path: Path):
    for name, words in (("twinlog", "-m twinlog.cli.main "), ("python3", "")):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-mc", script()],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said, _ = shell.communicate(timeout=240)
    finally:
        shell.terminate()  # ends what it has started
        shell.wait(20)
    assert shell.returncode == 0, said[-3000:]
    assert said.count("in step") == 2
    numbers = re.findall(r"\b(\d{1,3})$", (tmp_path / "served.txt").read_text(), re.MULTILINE)
    assert sorted(map(int, numbers)) == list(range(1, 601))
    *_, last = (tmp_path / "before.txt").read_text().splitlines()
    assert re.search(r'before: .*"readQueueNums":4\b.* after: .*"readQueueNums":8\b', last)
