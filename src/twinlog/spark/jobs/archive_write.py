"""Arrow batches of messages into Parquet files, one per topic and day; runs in Spark's tasks.

Messages go from the decoder to the file as Arrow, and never become rows of a JVM: that is most of the cost of a
stream's usual way into Parquet. What is not yet a row group waits in memory, at most `_BUFFER_BYTES_MAX` of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive_layout import StagedFile
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns, arrow_schema

_GROUP_BYTES = 32 << 20  # of Arrow, per row group
_BUFFER_BYTES_MAX = 96 << 20
_DAY_US = 86_400_000_000
# Where values repeat; trying it on bodies and message ids would cost much and bring nothing.
_REPEATING = ("brokerName", "queueId", "tags", "flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes")
Key = tuple[str, int]  # topic, day since 1970


class CannotWrite(SparkSourceError):
    """A file of the archive that could not be written; its batch does not count."""

    def __init__(self, path: Path, error: OSError) -> None:
        hint = "free space or allow writing, then run again: the batch is repeated, what counted before stays"
        super().__init__(f"{path} cannot be written ({error.strerror or error}): {hint}")


@dataclass(slots=True)
class _Open:
    """A file that is being filled."""

    path: Path
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0


class FileWriter:
    """Writes the files of one task into a staging directory."""

    def __init__(self, directory: Path, columns: Columns, compression: str) -> None:
        self._directory = directory
        self._schema = arrow_schema({name: kind for name, kind in columns.items() if name != "topic"})
        self._compression = compression
        self._open: dict[Key, _Open] = {}
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            for key, part in split(batch):
                self._add(key, part.drop_columns(["topic"]))
            while self._waiting_bytes > _BUFFER_BYTES_MAX:
                self._write_group(max(self._open.values(), key=lambda one: one.waiting_bytes))
        except OSError as error:
            raise CannotWrite(self._directory, error) from error

    def finish(self) -> Iterator[tuple[Path, str, int, int]]:
        """Close the files: path, partition, rows and bytes of each."""
        try:
            for (topic, day), one in sorted(self._open.items()):
                self._write_group(one)
                one.writer.close()
                yield one.path, partition_name(topic, day), one.rows, one.path.stat().st_size
        except OSError as error:
            raise CannotWrite(self._directory, error) from error

    def _add(self, key: Key, part: pa.RecordBatch) -> None:
        one = self._open.get(key)
        if one is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"{uuid.uuid4().hex}.parquet"
            settings: dict[str, Any] = {"compression": self._compression}
            settings["use_dictionary"] = [name for name in _REPEATING if name in self._schema.names]
            writer = pq.ParquetWriter(path, self._schema, **settings)
            one = self._open[key] = _Open(path, writer)
        one.waiting.append(part)
        one.waiting_bytes += part.nbytes
        one.rows += part.num_rows
        self._waiting_bytes += part.nbytes
        if one.waiting_bytes >= _GROUP_BYTES:
            self._write_group(one)

    def _write_group(self, one: _Open) -> None:
        if one.waiting:
            table = pa.Table.from_batches(one.waiting, self._schema)
            one.writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting_bytes -= one.waiting_bytes
            one.waiting, one.waiting_bytes = [], 0


def write_files(
    batches: Iterable[pa.RecordBatch], root: Path, directory: Path, columns: Columns, compression: str
) -> list[StagedFile]:
    """All of `batches` as files below `directory`, which is below `root`."""
    writer = FileWriter(directory, columns, compression)
    for batch in batches:
        if batch.num_rows:
            writer.write(batch)
    return [
        StagedFile(path.relative_to(root).as_posix(), partition, rows, size)
        for path, partition, rows, size in writer.finish()
    ]


def split(batch: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The rows of each topic and day, in their order."""
    days = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // _DAY_US
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    if len(names) == 1 and days[0] == days[-1] and (days == days[0]).all():
        yield (names[0], int(days[0])), batch
        return
    numbers = topics.indices.to_numpy()
    keys, found = np.unique(np.stack((numbers, days)), axis=1, return_inverse=True)
    for place, (number, day) in enumerate(keys.T.tolist()):
        yield (names[number], day), batch.take(pa.array(np.flatnonzero(found.ravel() == place)))


def partition_name(topic: str, day: int) -> str:
    """topic=…/day=…, escaped as readers of such directories expect it."""
    return f"topic={quote(topic, safe='')}/day={np.datetime64(day, 'D')}"


def message_schema(names: Iterable[str]) -> Columns:
    return {name: MESSAGE_COLUMNS[name] for name in names}


def file_columns() -> Mapping[str, str]:
    """What a task tells of each file it wrote."""
    return {"path": "string", "partition": "string", "rows": "bigint", "bytes": "bigint"}
