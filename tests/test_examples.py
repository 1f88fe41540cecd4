"""Every program in examples/ runs to its end and prints what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISES = {
    "send_and_receive.py": ["sent tea to queue", "got tea (tag order", "got coffee", "got water"],
    "in_order.py": ["ann -> ordered, paid, shipped", "ben -> ordered, paid, shipped"],
    "transaction.py": ["COMMIT "],
    "without_asyncio.py": ["got no event loop here"],
    "request_reply.py": ["HOW ARE YOU?"],
    "store_plugin.py": ["Monday: card=4111 was refused", "counted {'Orders': 4}"],
    "read_a_range.py": ["20 degrees", "27 degrees"],
}


def test_every_example_is_listed_and_promises_something():
    files = {file.name for file in EXAMPLES.glob("*.py")}
    listed = (EXAMPLES / "README.md").read_text()
    assert files == {*PROMISES, "follow_a_broker.py"}  # it needs Spark: see tests/spark/jobs/sync
    assert all(f"`{name}`" in listed for name in files)


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_runs(name, twinlog_broker_session):
    environment = {**os.environ, "NAMESRV_ADDR": twinlog_broker_session.namesrv}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment)
    assert done.returncode == 0, done.stderr
    for promise in PROMISES[name]:
        assert promise in done.stdout
