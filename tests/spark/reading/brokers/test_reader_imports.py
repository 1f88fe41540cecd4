"""What the process imports that Spark starts anew to plan a read."""

import subprocess
import sys

import pytest

_PLAN = """
import sys
from twinlog.spark.source import RocketmqSource
from twinlog.spark.reading.brokers import batch_reader
print([name for name in {heavy!r} if name in sys.modules])
"""


@pytest.mark.timeout(120)
def test_a_reader_imports_neither_a_loop_nor_tables_of_metadata():
    code = _PLAN.format(
        heavy=("asyncio", "pandas", "twinlog.net.connection", "twinlog.metadata", "twinlog.replication")
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
