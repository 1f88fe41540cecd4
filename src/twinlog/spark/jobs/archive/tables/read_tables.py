"""A table as Spark sees it, by its files: needs no build of Iceberg or Delta for the Spark in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.spark.jobs.archive.lakes.tables import spark_reads
from twinlog.spark.jobs.archive.layout import BadArchive, day_of, topic_of
from twinlog.spark.jobs.archive.tables.table import ArchiveTable, TablePlace, open_table
from twinlog.spark.lake.errors import LakeError, one_line
from twinlog.spark.lake.lake import Lake
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns, arrow_schema, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_MAX = 64


def existing_table(place: TablePlace) -> ArchiveTable:
    found = open_table(place)
    if found is None:
        hint = "`pipeline archive` makes it" if place.format == "delta" or place.catalog else "is it in a catalog?"
        raise BadArchive(f"there is no {place.format} table at {place.lake.root}: {hint}")
    return found


def read_table(spark: SparkSession, place: TablePlace, version: int | None = None) -> DataFrame:
    """The table as it is now or was at `version`: message columns first, then the others, then `day`."""
    table = existing_table(place)
    names = [below(place.lake, one) for one in table.data_files(version)]
    return read_files(spark, place, names, in_order(table.columns()))


def in_order(columns: Columns) -> Columns:
    names = [name for name in MESSAGE_COLUMNS if name in columns]
    names += [name for name in columns if name not in MESSAGE_COLUMNS and name != "day"]
    return {name: columns[name] for name in (*names, "day")}


def read_files(spark: SparkSession, place: TablePlace, names: Iterable[str], columns: Columns) -> DataFrame:
    """These files below the table's root as one table; a column that a file lacks is null there."""
    found = list(names)
    if not found:
        return spark.createDataFrame([], ddl(columns))
    if not spark_reads(spark, place.lake):
        work = ReadTableFiles(place.lake, tuple(found), columns)
        return spark.range(0, len(found), 1, min(len(found), _TASKS_MAX)).mapInArrow(work, ddl(columns))
    reader = spark.read.schema(ddl(columns))
    if place.format == "delta":  # its partition columns are in the paths only
        reader = reader.option("basePath", str(place.lake.root))
    return reader.parquet(*(str(place.lake.root / one) for one in found)).select(*columns)


def below(lake: Lake, address: str) -> str:
    """The name of a file below the table's root, from its address in the table's metadata."""
    for root in (f"{lake.root}/", f"file://{lake.root}/"):
        if address.startswith(root):
            return address[len(root) :]
    raise BadArchive(f"{address} is not below {lake.root}: somebody else added it to the table")


@dataclass(frozen=True, slots=True)
class ReadTableFiles:
    """For mapInArrow: the rows of the files with these numbers."""

    lake: Lake
    files: tuple[str, ...]
    columns: Columns

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.columns)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._rows(self.files[number], schema)

    def _rows(self, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        partition = "/".join(name.split("/")[-3:-1])
        constants = {"topic": pa.scalar(topic_of(partition)), "day": pa.scalar(day_of(partition)).cast(pa.date32())}
        try:
            files, path = self.lake.table_file(name)
            with files.open_input_file(path) as source:
                file = pq.ParquetFile(source)
                inside = [one for one in file.schema_arrow.names if one in self.columns]
                for batch in file.iter_batches(columns=inside):
                    arrays = []
                    for field in schema:
                        if field.name in inside:
                            arrays.append(batch.column(field.name).cast(field.type))
                        elif field.name in constants:
                            arrays.append(pa.repeat(constants[field.name], batch.num_rows))
                        else:
                            arrays.append(pa.nulls(batch.num_rows, field.type))
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except OSError as error:
            hint = "if the version it belongs to has just expired, repeat the query"
            raise LakeError(self.lake.root / name, f"cannot be read ({one_line(error)})", hint) from error
