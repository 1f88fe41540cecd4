"""Tables on a lake for Spark: files read as a DataFrame, and a DataFrame written as files, by tasks or by Spark.

Where tasks reach the store (`Lake.in_tasks`), they read and write with pyarrow. Elsewhere Spark does, with Hadoop's
file system. Spark reads a bucket itself as well, if it has the connector: then it skips columns and row groups that a
query does not need, which it cannot ask of Python.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.errors import LakeError, one_line
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.opening import open_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_MAX = 64  # that read files
STAGING = "_staging"


def spark_reads(spark: SparkSession, lake: Lake) -> bool:
    """Whether Spark itself has a file system for this lake."""
    if lake.root.is_local:
        return True
    try:
        session: Any = spark
        conf = session._jsparkSession.sessionState().newHadoopConf()
        session._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(lake.root.scheme, conf)
    except Exception:  # no connector, or no JVM here (Spark Connect)
        return False
    return True


def table_names(lake: Lake, prefix: str = "") -> list[str]:
    """The files of a table as any reader finds them: those below names with an underscore or a dot do not count."""
    return [
        entry.name
        for entry in lake.list(prefix)
        if entry.name.endswith(".parquet") and not any(part[0] in "._" for part in entry.name.split("/"))
    ]


def read_table(spark: SparkSession, lake: Lake, names: Sequence[str]) -> DataFrame:
    """These files, at least one, as one table with the columns of the last."""
    if not lake.in_tasks or spark_reads(spark, lake):
        return spark.read.option("recursiveFileLookup", "true").parquet(*(str(lake.root / name) for name in names))
    from pyspark.sql.pandas.types import from_arrow_schema

    with reading(lake, names[-1]):
        files, path = lake.table_file(names[-1])
        schema = pq.read_schema(path, filesystem=files)
    work = ReadTable(lake, tuple(names), schema)
    return spark.range(0, len(names), 1, min(len(names), _TASKS_MAX)).mapInArrow(work, from_arrow_schema(schema))


@dataclass(frozen=True, slots=True)
class ReadTable:
    """For mapInArrow: the rows of the files with these numbers."""

    lake: Lake
    names: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in read_batches(self.lake, self.names[number], self.schema.names):
                    yield rows.select(self.schema.names).cast(self.schema)


def read_batches(lake: Lake, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of one file, a part at a time."""
    try:
        files, path = lake.table_file(name)
        with files.open_input_file(path) as source:
            yield from pq.ParquetFile(source).iter_batches(columns=list(columns))
    except OSError as error:
        raise cannot_read(lake, name, error) from error


class reading:
    """Turns an error of pyarrow into one that names the file."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake = lake
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            raise cannot_read(self._lake, self._name, error) from error


def cannot_read(lake: Lake, name: str, error: OSError) -> LakeError:
    hint = "if the file was removed meanwhile, repeat the query; otherwise check the keys and the store"
    return LakeError(lake.root / name, f"cannot be read ({one_line(error)})", hint)


# -- writing -------------------------------------------------------------------------------------------


def append_table(frame: DataFrame, to: str, what: str, name: str) -> None:
    """Add the rows to the table at `to`; on a lake as files of this name, which readers see whole."""
    place = parse_address(to, what)
    lake = None if place.is_local else open_lake(frame.sparkSession, place)
    if lake is None or not lake.in_tasks:
        frame.write.mode("append").parquet(to if place.is_local else str(place))
        return
    for number, staged in enumerate(sorted(stage_table(frame, lake))):
        lake.move(staged, f"{name}-{number:05d}.parquet")


def parquet_bytes(table: pa.Table) -> bytes:
    """A small table as the content of one file."""
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return out.getvalue().to_pybytes()


def stage_table(frame: DataFrame, lake: Lake) -> list[str]:
    """Write the rows as files that no reader counts yet, one for each partition with rows; returns their names."""
    folder = f"{STAGING}/{uuid.uuid4().hex}"
    if not lake.in_tasks:
        frame.write.parquet(str(lake.root / folder))
        return [entry.name for entry in lake.list(f"{folder}/") if entry.name.endswith(".parquet")]
    write = WriteTable(lake, folder)
    return [row.name for row in frame.mapInArrow(write, write.YIELDS).collect()]


@dataclass(frozen=True, slots=True)
class WriteTable:
    """For mapInArrow: writes the rows of a partition as one file; yields its name. Others are of failed attempts."""

    YIELDS: ClassVar[str] = "name string"

    lake: Lake
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer, name = None, f"{self.folder}/{uuid.uuid4().hex}"
        try:
            for batch in batches:
                if batch.num_rows:
                    if writer is None:
                        files, path = self.lake.table_file(name)
                        writer = pq.ParquetWriter(path, batch.schema, filesystem=files)
                    writer.write_batch(batch)
            if writer is not None:
                writer.close()
                yield pa.record_batch({"name": [name]})
        except OSError as error:
            raise LakeError(self.lake.root / name, f"cannot be written ({one_line(error)})") from error
