"""Archives on lakes without Spark: a source of numbers, tasks in this process, and a lake that dies."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.spark.jobs.archive.archive_plan import ArchiveJob
from twinlog.spark.jobs.archive.compaction_plan import CompactJob
from twinlog.spark.jobs.archive.lakes.compact import compact_lake
from twinlog.spark.jobs.archive.lakes.job import fill
from twinlog.spark.jobs.archive.lakes.live_files import live_files
from twinlog.spark.jobs.archive.layout import StagedFile
from twinlog.spark.jobs.archive.write import WriteSorted, write_files
from twinlog.spark.schema import MESSAGE_COLUMNS, arrow_schema

DAY_US = 86_400_000_000
MONDAY = 20_000  # days since 1970
OLD = "topic=Orders/day=2024-10-04"
COMPACT = CompactJob(target="", before="2999-01-01")
INSIDE = {name: kind for name, kind in MESSAGE_COLUMNS.items() if name != "topic"}


def rows_of(offsets, day=MONDAY, topic="Orders") -> pa.RecordBatch:
    rows = [
        {"topic": topic, "brokerName": "a", "queueId": 0, "queueOffset": n, "storeTimestamp": day * DAY_US + n}
        for n in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(MESSAGE_COLUMNS))


class Numbers:
    """A source with one queue that holds the numbers below `end`; a batch takes some of them."""

    def __init__(self, end: int, per_batch: int = 10) -> None:
        self.end = end
        self._per_batch = per_batch

    def initialOffset(self):
        return {"Orders@a@0": 0}

    def getDefaultReadLimit(self):
        return None

    def latestOffset(self, start, limit):
        return {"Orders@a@0": min(self.end, start["Orders@a@0"] + self._per_batch)}

    def reportLatestOffset(self):
        return {"Orders@a@0": self.end}

    def prepareForTriggerAvailableNow(self):
        pass

    def partitions(self, start, end):
        low, high = start["Orders@a@0"], end["Orders@a@0"]
        middle = (low + high) // 2
        return [range(low, middle), range(middle, high)]


def writer(lake):
    """Each partition is a task, which writes its file; an attempt that failed before it left one too."""

    def write(parts, folder) -> list[StagedFile]:
        write_files([rows_of(parts[0])], lake, folder, MESSAGE_COLUMNS, "snappy")
        return [
            file for part in parts for file in write_files([rows_of(part)], lake, folder, MESSAGE_COLUMNS, "snappy")
        ]

    return write


def run(lake, end: int, per_batch: int = 10, over=lambda: False):
    """One run of the archive, up to number `end`."""
    job = ArchiveJob(target=str(lake.root), name_server="none:1", topics=("Orders",))
    return fill(lake, job, Numbers(end, per_batch), writer(lake), is_over=over)


def rewrite(lake):
    def write(files, folder, count):
        batches = [batch for file in files for batch in table(lake, file.path).to_batches()]
        (made,) = WriteSorted(lake, folder, INSIDE, "snappy")(batches)
        (row,) = made.to_pylist()
        done = [StagedFile(row["path"], files[0].partition, row["rows"], row["bytes"])]
        return sum(table(lake, file.path).num_rows for file in files), done

    return write


def compact(lake):
    return compact_lake(lake, COMPACT, rewrite(lake))


def table(lake, path: str) -> pa.Table:
    files, at = lake.table_file(path)
    with files.open_input_file(at) as source:
        return pq.ParquetFile(source).read()


def live(lake) -> list[int]:
    """What our reader sees."""
    _, found = live_files(lake)
    return sorted(number for files in found.values() for file in files for number in numbers_in(lake, file.path))


def plain(lake) -> list[int]:
    """What a reader of the directory sees that knows nothing of archives."""
    names = [entry.name for entry in lake.list("topic=") if entry.name.endswith(".parquet")]
    return sorted(number for name in names for number in numbers_in(lake, name))


def numbers_in(lake, path: str) -> list[int]:
    return table(lake, path)["queueOffset"].to_pylist()


class Killed(BaseException):
    """Stands for the end of the process."""


class DyingLake:
    """A real lake, until the n-th change is done; from then on the process is dead and does nothing more."""

    in_tasks = True

    def __init__(self, lake, steps: int) -> None:
        self.inner = lake
        self.root = lake.root
        self.left = steps

    def _step(self) -> None:
        if self.left <= 0:
            raise Killed
        self.left -= 1

    def write(self, name, data):
        if not name.startswith("_runs/"):
            self._step()
        elif self.left <= 0:
            raise Killed
        self.inner.write(name, data)

    def put_if_absent(self, name, data):
        self._step()
        return self.inner.put_if_absent(name, data)

    def delete(self, names):
        for name in list(names):  # it may die between two of them
            self._step()
            self.inner.delete([name])

    def move(self, old, new):
        self._step()
        self.inner.move(old, new)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class PausedLake:
    """A real lake for a process that sleeps once, just before this step: meanwhile others do `meanwhile`."""

    in_tasks = True

    def __init__(self, lake, step: str, prefix: str, meanwhile) -> None:
        self.inner = lake
        self.root = lake.root
        self._pause = (step, prefix, meanwhile)

    def __getattr__(self, step):
        found = getattr(self.inner, step)

        def paused(name="", *rest):
            wanted, prefix, meanwhile = self._pause
            if (step, name[: len(prefix)]) == (wanted, prefix):
                self._pause = ("", "", None)
                meanwhile()
            return found(name, *rest)

        return paused if step == self._pause[0] else found
