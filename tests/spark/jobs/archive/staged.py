"""Staged files of an archive without Spark, and a run that ends after some steps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from twinlog.spark.jobs.archive.files import Ops
from twinlog.spark.jobs.archive.write import write_files
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.spark.schema import MESSAGE_COLUMNS, arrow_schema

DAY_US = 86_400_000_000
MONDAY = 20_000  # days since 1970


class Killed(BaseException):
    """Stands for the end of the process."""


class KilledAfter(Ops):
    """Real files, until the n-th operation is done."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def _step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def save_commit(self, root, commit):
        self._step()
        super().save_commit(root, commit)

    def move(self, old, new):
        self._step()
        super().move(old, new)

    def exchange(self, one, other):
        self._step()
        super().exchange(one, other)

    def remove_exchanged(self, directory):
        self._step()
        super().remove_exchanged(directory)

    def remove(self, directory):
        self._step()
        super().remove(directory)


def batch_of(offsets, topic="Orders", day=MONDAY) -> pa.RecordBatch:
    rows = [
        {
            "topic": topic if isinstance(topic, str) else topic[n % len(topic)],
            "brokerName": "a",
            "queueId": 0,
            "queueOffset": n,
            "body": b"%d" % n,
            "sysFlag": 4 if topic == "Halves" else 0,
            "storeTimestamp": (day if isinstance(day, int) else day[n % len(day)]) * DAY_US + n,
        }
        for n in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(MESSAGE_COLUMNS))


def stage(root: Path, *batches: pa.RecordBatch):
    return write_files(batches, lake_of(root), "_staging/run", MESSAGE_COLUMNS, "snappy")


def lake_of(root: Path) -> LocalLake:
    return LocalLake(parse_address(root, "archive"))


def visible(root: Path) -> list[int]:
    """The offsets that any reader of Parquet sees."""
    table = ds.dataset(root, partitioning="hive", exclude_invalid_files=False).to_table(columns=["queueOffset"])
    return sorted(table["queueOffset"].to_pylist())


def globbed(root: Path) -> list[int]:
    """The offsets in all that **/*.parquet finds, hidden directories and those with an underscore included."""
    found = [pq.ParquetFile(path).read(["queueOffset"])["queueOffset"].to_pylist() for path in root.rglob("*.parquet")]
    return sorted(offset for offsets in found for offset in offsets)


def rewrite(files, directory, count):
    """What Spark does in a real run."""
    tables = [pq.read_table(file, partitioning=None) for file in files]
    table = pa.concat_tables(tables).sort_by([("queueId", "ascending"), ("queueOffset", "ascending")])
    directory.mkdir()
    pq.write_table(table, directory / "0.staged")
    assert len(globbed(directory.parent.parent)) == len(set(globbed(directory.parent.parent)))
    return ["0.staged"]
