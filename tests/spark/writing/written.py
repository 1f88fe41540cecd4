"""Frames for writers without a JVM, and what they left in a topic."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from tests.spark.topics import Topic

from twinlog.spark.writing.options import write_options
from twinlog.spark.writing.task import TaskPlace, TaskWrite
from twinlog.spark.writing.totals import SendTotals

MAPS = pa.map_(pa.string(), pa.string())
_TYPES = {"body": pa.binary(), "flag": pa.int32(), "delayLevel": pa.int32(), "queueId": pa.int32(), "properties": MAPS}
_TYPES["deliverAt"] = pa.timestamp("us", tz="UTC")


class Place(Protocol):
    """A topic as far as a writer needs to know it."""

    def options(self, **more: object) -> dict[str, str]: ...


class NamedTopic:
    """A topic of a broker that a test has started for itself."""

    def __init__(self, name_server: str, name: str) -> None:
        self._given = {"nameServer": name_server, "topic": name}

    def options(self, **more: object) -> dict[str, str]:
        return {name: str(value) for name, value in {**self._given, **more}.items()}


def frame(rows: list[dict]) -> pa.RecordBatch:
    """An Arrow batch as Spark would hand it over; a column that a row lacks is null there."""
    names = list(dict.fromkeys(name for one in rows for name in one))
    columns = {name: [one.get(name) for one in rows] for name in names}
    if "properties" in columns:
        columns["properties"] = [None if m is None else list(m.items()) for m in columns["properties"]]
    return pa.RecordBatch.from_pydict({n: pa.array(v, _TYPES.get(n, pa.string())) for n, v in columns.items()})


def numbered(count: int, start: int = 0, **columns: object) -> pa.RecordBatch:
    return frame([{"body": b"%d" % n, **columns} for n in range(start, start + count)])


def write(
    place: Place, *batches: pa.RecordBatch, write_id: str = "", batch_id: int = 0, partition: int = 0, **more: object
) -> SendTotals:
    """Write as one task of a Spark job would; with a `write_id`, idempotently. topic="" leaves it to the rows."""
    return task(place, write_id, batch_id, partition, **more).run(iter(batches))


def task(place: Place, write_id: str = "", batch_id: int = 0, partition: int = 0, **more: object) -> TaskWrite:
    stamped = {"idempotent": "true"} if write_id else {}
    options = write_options({**place.options(retryPauseMs=10, **more), **stamped}, streaming=True)
    return TaskWrite(options, TaskPlace(write_id, batch_id, partition))


def rows_of(topic: Topic, **more: object) -> list[dict]:
    """All rows of a topic, by queue and offset."""
    reader = topic.reader(**more)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["brokerName"], row["queueId"], row["queueOffset"]))
