"""The files of an archive on a lake as a table of Spark's, and rows written as files: by tasks of ours, or by Spark.

See `spark/lake/spark_tables.py` for who reads and writes. These files have partitions, in the names of their folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from twinlog.spark.jobs.archive.lakes.live_files import LiveFile, live_files
from twinlog.spark.jobs.archive.layout import ArchiveHeader, StagedFile, day_of, topic_of
from twinlog.spark.jobs.archive.query import DAY
from twinlog.spark.jobs.archive.source import ArchiveSpec, ArchivingReader, describe_files
from twinlog.spark.jobs.archive.write import CannotWriteArchive, file_columns, message_schema, write_files
from twinlog.spark.jobs.conditions import sql_text
from twinlog.spark.lake.errors import one_line
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.spark_tables import read_batches, spark_reads
from twinlog.spark.schema import arrow_schema, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

_READERS_MAX = 64  # tasks that read files, unless there are more cores
_TIMES = "spark.sql.parquet.outputTimestampType"


def read_live(spark: SparkSession, lake: Lake, header: ArchiveHeader) -> DataFrame:
    """The archive as it is now; a query that runs while compaction removes its files fails and is to be repeated."""
    _, found = live_files(lake)
    return read_files(spark, lake, [file for files in found.values() for file in files], header.schema())


def read_files(spark: SparkSession, lake: Lake, files: Sequence[LiveFile], columns: dict[str, str]) -> DataFrame:
    """These files as one table."""
    if not files:
        return spark.createDataFrame([], ddl(columns))
    if lake.in_tasks and not spark_reads(spark, lake):
        tasks = min(len(files), max(_READERS_MAX, 1))
        work = ReadFiles(lake, tuple(files), columns)
        return spark.range(0, len(files), 1, tasks).mapInArrow(work, ddl(columns))
    reader = spark.read.schema(ddl(columns)).option("basePath", str(lake.root))
    published = [str(lake.root / file.path) for file in files if file.is_published]
    frames = [reader.parquet(*published)] if published else []
    inside = {name: kind for name, kind in columns.items() if name not in ("topic", "day")}
    for file in files:
        if not file.is_published:
            frame = (
                spark.read.schema(ddl(inside)).option("recursiveFileLookup", "true").parquet(str(lake.root / file.path))
            )
            more = (f"{sql_text(topic_of(file.partition))} as topic", f"date'{day_of(file.partition)}' as day")
            frames.append(frame.selectExpr("*", *more))
    return reduce(lambda one, other: one.unionByName(other), (frame.select(*columns) for frame in frames))


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """For mapInArrow: the rows of the files with these numbers."""

    lake: Lake
    files: tuple[LiveFile, ...]
    columns: dict[str, str]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._rows(self.files[number], schema)

    def _rows(self, file: LiveFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        inside = [name for name in self.columns if name not in ("topic", "day")]
        day = pa.scalar(day_of(file.partition)).cast(pa.date32())
        for batch in read_batches(self.lake, file.path, inside):
            values = {name: batch.column(name) for name in inside}
            values["topic"] = pa.repeat(topic_of(file.partition), batch.num_rows)
            values["day"] = pa.repeat(day, batch.num_rows)
            arrays = [values[field.name].cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- writing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteParts:
    """For mapInArrow: writes the messages of the partitions with these numbers; yields the files."""

    spec: ArchiveSpec
    parts: tuple[InputPartition, ...]
    lake: Lake
    folder: str

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader, columns = ArchivingReader(self.spec), message_schema(self.spec.columns)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                messages = reader.messages(self.parts[number])
                yield describe_files(write_files(messages, self.lake, self.folder, columns, self.spec.compression))


@dataclass(frozen=True, slots=True)
class ReadParts:
    """For mapInArrow: the messages of the partitions with these numbers."""

    spec: ArchiveSpec
    parts: tuple[InputPartition, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ArchivingReader(self.spec)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.messages(self.parts[number])


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Writes a batch as staged files, in tasks of Spark's."""

    spark: SparkSession
    lake: Lake
    spec: ArchiveSpec

    def __call__(self, parts: Sequence[InputPartition], folder: str) -> list[StagedFile]:
        numbers = self.spark.range(0, len(parts), 1, len(parts))
        if self.lake.in_tasks:
            work = WriteParts(self.spec, tuple(parts), self.lake, folder)
            rows = numbers.mapInArrow(work, ddl(dict(file_columns()))).collect()
            return [StagedFile(row.path, row.partition, row.rows, row.bytes) for row in rows]
        columns = message_schema(self.spec.columns)
        frame = numbers.mapInArrow(ReadParts(self.spec, tuple(parts)), ddl(columns)).selectExpr("*", DAY)
        return write_by_spark(frame, self.lake, folder, self.spec.compression, ("topic", "day"))


def write_by_spark(
    frame: DataFrame, lake: Lake, folder: str, compression: str, by: Sequence[str] = ()
) -> list[StagedFile]:
    """The rows as files of a new folder, written by Spark; an attempt that fails leaves nothing there."""
    place = str(lake.root / folder)
    with _plain_times(frame.sparkSession):
        writer = frame.write.option("compression", compression).mode("error")
        try:
            (writer.partitionBy(*by) if by else writer).parquet(place)
        except Exception as error:
            raise CannotWriteArchive(place, OSError(one_line(error))) from error
    counts = _rows_by_file(frame.sparkSession, place, bool(by))
    found = []
    for entry in lake.list(f"{folder}/"):
        if entry.name.endswith(".parquet"):
            partition, _, name = entry.name[len(folder) + 1 :].rpartition("/")
            partition = _own_escapes(partition)
            found.append(StagedFile(entry.name, partition, counts.get((partition, name), 0), entry.size))
    return found


def _rows_by_file(spark: SparkSession, place: str, is_partitioned: bool) -> dict[tuple[str, str], int]:
    """The rows of each file, from what was written: by partition and name."""
    from pyspark.errors import AnalysisException

    reader = spark.read.schema("topic string, day date") if is_partitioned else spark.read
    columns = ("topic", "cast(day as string) as day") if is_partitioned else ("'' as topic", "'' as day")
    try:
        frame = reader.parquet(place).selectExpr(*columns, "_metadata.file_name as name")
    except AnalysisException:  # no row, no file
        return {}
    rows = frame.groupBy("topic", "day", "name").count().collect()
    return {(_partition(row.topic, row.day) if is_partitioned else "", row.name): row["count"] for row in rows}


def _own_escapes(partition: str) -> str:
    """Spark escapes fewer characters in the name of a partition than we do."""
    return _partition(topic_of(partition), day_of(partition)) if partition else ""


def _partition(topic: str, day: str) -> str:
    return f"topic={quote(topic, safe='')}/day={day}"


@contextmanager
def _plain_times(spark: SparkSession) -> Iterator[None]:
    """Times as our own writer stores them; Spark's default is an old form that is read as nanoseconds."""
    before = spark.conf.get(_TIMES, None)
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_TIMES)
        else:
            spark.conf.set(_TIMES, before)
