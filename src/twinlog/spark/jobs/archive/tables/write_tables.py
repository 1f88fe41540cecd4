"""Messages into the files of one or two tables; runs in Spark's tasks.

A file is written where it stays: readers of a table see only files that a commit names. What an attempt that failed
leaves is removed by `twinlog pipeline expire`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pyarrow as pa

from twinlog.spark.jobs.archive.layout import StagedFile
from twinlog.spark.jobs.archive.parse.parser import BodyColumns, ParsePlan
from twinlog.spark.jobs.archive.source import ArchiveSpec, ArchivingReader
from twinlog.spark.jobs.archive.tables.table import PARTITIONS, FileShape
from twinlog.spark.jobs.archive.write import FileWriter, Key, StagedFileWriter, file_columns, partition_name
from twinlog.spark.lake.lake import Lake
from twinlog.spark.schema import arrow_schema, ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition


class Written(NamedTuple):
    """The files of a batch, for the main table and for that of rows that do not parse."""

    main: list[StagedFile]
    second: list[StagedFile]


@dataclass(frozen=True, slots=True)
class Target:
    """A table as tasks see it."""

    lake: Lake
    shape: FileShape
    compression: str


class TableFileWriter(FileWriter):
    """Writes the files of one task, one for each topic and day, in the shape of the table."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.lake, target.shape.folder, {}, target.compression)
        self._schema = target.shape.schema
        self._folder = target.shape.folder

    def _add(self, key: Key, part: pa.RecordBatch) -> None:
        if key not in self._open:
            folder = "/".join(filter(None, (self._folder, partition_name(*key))))
            self._open[key] = StagedFileWriter(self._lake, folder, self._schema, self._compression, suffix=".parquet")
        self._open[key].add(self._shaped(key, part))

    def _shaped(self, key: Key, part: pa.RecordBatch) -> pa.RecordBatch:
        topic, day = key
        constants = dict(zip(PARTITIONS, (pa.scalar(topic), pa.scalar(day, pa.int32()).cast(pa.date32())), strict=True))
        arrays = []
        for field in self._schema:
            if field.name in constants:
                arrays.append(pa.repeat(constants[field.name], part.num_rows).cast(field.type))
            else:
                arrays.append(part.column(field.name).cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@dataclass(frozen=True, slots=True)
class WriteTableParts:
    """For mapInArrow: writes the messages of the partitions with these numbers; yields the files."""

    YIELDS: ClassVar[dict[str, str]] = {**file_columns(), "second": "boolean"}

    spec: ArchiveSpec
    parts: tuple[InputPartition, ...]
    main: Target
    second: Target | None = None
    plan: ParsePlan | None = None

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ArchivingReader(self.spec)
        bodies = BodyColumns(self.plan) if self.plan else None
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield self._write(reader.messages(self.parts[number]), bodies)

    def _write(self, batches: Iterable[pa.RecordBatch], bodies: BodyColumns | None) -> pa.RecordBatch:
        main = TableFileWriter(self.main)
        second = TableFileWriter(self.second) if self.second else None
        for batch in batches:
            good, bad = (batch, None) if bodies is None else bodies.split(batch)
            assert batch.num_rows == good.num_rows + (bad.num_rows if bad is not None else 0)
            if good.num_rows:
                main.write(good)
            if bad is not None and bad.num_rows:
                assert second is not None
                second.write(bad)
        rows = [{**asdict(file), "second": False} for file in main.finish()]
        rows += [{**asdict(file), "second": True} for file in (second.finish() if second else ())]
        return pa.RecordBatch.from_pylist(rows, arrow_schema(dict(self.YIELDS)))


@dataclass(frozen=True, slots=True)
class TableBatchWriter:
    """Writes a batch in tasks of Spark's."""

    spark: SparkSession
    spec: ArchiveSpec
    main: Target
    second: Target | None = None
    plan: ParsePlan | None = None

    def __call__(self, parts: Sequence[InputPartition]) -> Written:
        work = WriteTableParts(self.spec, tuple(parts), self.main, self.second, self.plan)
        numbers = self.spark.range(0, len(parts), 1, len(parts))
        rows = numbers.mapInArrow(work, ddl(dict(work.YIELDS))).collect()
        found = Written([], [])
        for row in rows:
            file = StagedFile(row.path, row.partition, row.rows, row.bytes)
            (found.second if row.second else found.main).append(file)
        return found
