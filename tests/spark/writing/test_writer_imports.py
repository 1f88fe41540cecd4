"""What the processes of a write import that Spark starts anew each time."""

import subprocess
import sys

import pytest

_HEAVY = ("pyarrow", "numpy", "pandas", "twinlog.client", "twinlog.net")
_COMMIT = """
import pickle, sys
messages = pickle.loads(bytes.fromhex({messages!r}))
writer = pickle.loads(bytes.fromhex({writer!r}))
writer.commit(messages)
print([name for name in {heavy!r} if name in sys.modules])
"""


@pytest.mark.timeout(120)
def test_a_commit_imports_neither_arrow_nor_the_client():
    import pickle

    from twinlog.spark.writing.options import write_options
    from twinlog.spark.writing.totals import SendTotals
    from twinlog.spark.writing.writer import QueueWriter, Written
    from twinlog.wire.bodies import MessageQueue

    writer = QueueWriter(write_options({"nameServer": "127.0.0.1:9876", "topic": "T"}, streaming=False))
    totals = SendTotals(rows=5, last_offsets={MessageQueue("T", "b", 0): 4})
    code = _COMMIT.format(
        messages=pickle.dumps([Written(totals), None]).hex(), writer=pickle.dumps(writer).hex(), heavy=_HEAVY
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


_PLAN = """
import sys
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_rocketmq import *
from twinlog.spark.source import RocketmqSource
source = RocketmqSource({{"nameServer": "127.0.0.1:9876", "topic": "T"}})
source.writer(StructType([StructField("body", BinaryType())]), overwrite=False)
print([name for name in {heavy!r} if name in sys.modules])
"""


@pytest.mark.timeout(120)
def test_making_a_writer_imports_neither_arrow_nor_a_loop():
    heavy = ("pyarrow", "numpy", "pandas", "asyncio", "twinlog.client.producer", "twinlog.net.connection")
    code = _PLAN.format(heavy=heavy)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
