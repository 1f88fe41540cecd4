"""Arrow batches of messages into Parquet files, one per topic and day; runs in Spark's tasks.

Messages go from the decoder to the file as Arrow and never become rows in the JVM, which is most of the cost of Spark's
own way from a stream to Parquet. What is not yet a row group is kept in memory, at most `_BUFFER_BYTES_MAX` of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive.layout import STAGED, StagedFile
from twinlog.spark.lake.errors import one_line
from twinlog.spark.lake.lake import Lake
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns, arrow_schema

_GROUP_BYTES = 32 << 20  # of Arrow, per row group
_BUFFER_BYTES_MAX = 96 << 20
_DAY_US = 86_400_000_000
# Columns with repeated values; for bodies and message ids a dictionary costs much and saves nothing.
_REPEATING = ("brokerName", "queueId", "tags", "flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes")
Key = tuple[str, int]  # topic, day since 1970


class CannotWriteArchive(SparkSourceError):
    """A file of the archive could not be written; its batch is not committed."""

    def __init__(self, path: object, error: OSError) -> None:
        hint = "free space, allow writing or renew the keys, then run again: the batch is repeated, others stay"
        super().__init__(f"{path} cannot be written ({error.strerror or one_line(error)}): {hint}")


class StagedFileWriter:
    """A file that is being written, under a name that readers ignore; holds the rows of its next row group."""

    def __init__(self, lake: Lake, folder: str, schema: pa.Schema, compression: str, suffix: str = STAGED) -> None:
        self.name = f"{folder}/{uuid.uuid4().hex}{suffix}"
        self.rows = self.waiting_bytes = 0
        self._lake = lake
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        settings: dict[str, Any] = {"compression": compression}
        settings["use_dictionary"] = [name for name in _REPEATING if name in schema.names]
        self._files, self._path = lake.table_file(self.name)
        self._writer = pq.ParquetWriter(self._path, schema, filesystem=self._files, **settings)

    def add(self, part: pa.RecordBatch) -> None:
        self._waiting.append(part)
        self.waiting_bytes += part.nbytes
        self.rows += part.num_rows
        if self.waiting_bytes >= _GROUP_BYTES:
            self.write_group()

    def write_group(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting, self.waiting_bytes = [], 0

    def close(self) -> int:
        """Complete the file; returns its size."""
        self.write_group()
        self._writer.close()
        self._lake.make_durable(self.name)  # a commit that names it must not outlive it
        return self._files.get_file_info(self._path).size


class FileWriter:
    """Writes the files of one task into a folder of staged files."""

    def __init__(self, lake: Lake, folder: str, columns: Columns, compression: str) -> None:
        self._lake = lake
        self._folder = folder
        self._schema = arrow_schema({name: kind for name, kind in columns.items() if name != "topic"})
        self._compression = compression
        self._open: dict[Key, StagedFileWriter] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            for key, part in split(batch):
                self._add(key, part.drop_columns(["topic"]))
            while sum(one.waiting_bytes for one in self._open.values()) > _BUFFER_BYTES_MAX:
                max(self._open.values(), key=lambda one: one.waiting_bytes).write_group()
        except OSError as error:
            raise CannotWriteArchive(self._lake.root / self._folder, error) from error

    def finish(self) -> list[StagedFile]:
        """Close the files."""
        try:
            return [
                StagedFile(one.name, partition_name(topic, day), one.rows, one.close())
                for (topic, day), one in sorted(self._open.items())
            ]
        except OSError as error:
            raise CannotWriteArchive(self._lake.root / self._folder, error) from error

    def _add(self, key: Key, part: pa.RecordBatch) -> None:
        if key not in self._open:
            self._open[key] = StagedFileWriter(self._lake, self._folder, self._schema, self._compression)
        self._open[key].add(part)


@dataclass(frozen=True, slots=True)
class WriteSorted:
    """For mapInArrow: writes the rows of a partition, in their order, as one staged file; yields what it wrote.

    Only files whose names arrive are used: an attempt that failed or was too slow leaves its own file unused.
    """

    YIELDS: ClassVar[str] = "path string, rows bigint, bytes bigint"

    lake: Lake
    folder: str
    columns: Columns
    compression: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        file: StagedFileWriter | None = None
        try:
            for batch in batches:
                if batch.num_rows:
                    file = file or StagedFileWriter(self.lake, self.folder, schema, self.compression)
                    file.add(batch.cast(schema))
            if file is not None:
                numbers = {"rows": [file.rows], "bytes": [file.close()]}
                yield pa.record_batch({"path": [file.name], **{k: pa.array(v, pa.int64()) for k, v in numbers.items()}})
        except OSError as error:
            raise CannotWriteArchive(self.lake.root / self.folder, error) from error


def write_files(
    batches: Iterable[pa.RecordBatch], lake: Lake, folder: str, columns: Columns, compression: str
) -> list[StagedFile]:
    """All of `batches` as files in a folder of staged files."""
    writer = FileWriter(lake, folder, columns, compression)
    for batch in batches:
        if batch.num_rows:
            writer.write(batch)
    return writer.finish()


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
    """topic=…/day=…, escaped as readers of partitioned tables expect it."""
    return f"topic={quote(topic, safe='')}/day={np.datetime64(day, 'D')}"


def message_schema(names: Iterable[str]) -> Columns:
    return {name: MESSAGE_COLUMNS[name] for name in names}


def file_columns() -> Mapping[str, str]:
    """The columns of a row that describes one file."""
    return {"path": "string", "partition": "string", "rows": "bigint", "bytes": "bigint"}
