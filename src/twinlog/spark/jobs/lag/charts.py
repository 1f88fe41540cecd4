"""The table of samples as charts: groups in messages and seconds, replicas in bytes and seconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.lag.plot import Chart, page
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.lake.spark_tables import read_table, table_names
from twinlog.spark.paths import is_local, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = (".html", ".htm")


def check_plot(path: str) -> None:
    """BadOption for a file that cannot be written as a plot, before any sample is taken."""
    if not path.lower().endswith(SUFFIXES):
        raise BadOption(f"--plot {path!r}: plots are HTML files with the pictures inside; write for example lag.html")
    parent = local_path(path, "--plot").parent
    if not parent.is_dir():
        raise BadOption(f"--plot {path!r}: the directory {parent} does not exist; create it first")


def write_plot(spark: SparkSession, table: str, path: str, *, may_be_missing: bool = False) -> int:
    """Draw all samples of the table; returns the number of moments."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    check_plot(path)
    file = local_path(path, "--plot")
    try:
        samples = _samples(spark, table)
    except AnalysisException as error:
        if may_be_missing and not (is_local(table) and local_path(table, "--to").exists()):
            file.write_text(page("Lag", ()))
            return 0
        raise _no_samples(table) from error
    rows = (
        samples.filter("kind != 'error'")
        .groupBy("minute", "kind", "cluster", "brokerName", "brokerId", "consumerGroup")
        .agg(
            F.sum("lagMessages").alias("messages"),
            F.sum("lagBytes").alias("bytes"),
            F.max("lagSeconds").alias("seconds"),
        )
        .collect()
    )
    errors = samples.filter("kind = 'error'").groupBy("brokerName").agg(F.count("*"), F.max_by("error", "minute"))
    notes = [error_note(*row) for row in errors.collect()]
    found = [row.asDict() for row in rows]
    moments = sorted({row["minute"].timestamp() for row in found})
    every = min((b - a for a, b in itertools.pairwise(moments)), default=60.0)
    text = page("Lag", charts_of(found), every_s=every, notes=notes)
    file.write_text(text)
    return len(moments)


def _samples(spark: SparkSession, table: str) -> DataFrame:
    place = parse_address(table, "--to")
    if place.is_local:
        return spark.read.parquet(table)
    lake = open_lake(spark, place)
    names = table_names(lake)
    if not names:
        raise _no_samples(table)
    return read_table(spark, lake, names)


def _no_samples(table: str) -> BadOption:
    return BadOption(f"{table} is not a table of samples: take some first, `twinlog pipeline lag --to {table}`")


def error_note(broker: str, count: int, error: str) -> str:
    """The note of a plot about failed samples; those without a broker failed at the name server."""
    samples = "1 sample" if count == 1 else f"{count} samples"
    return f"{samples} of {broker or 'the name server'} failed, the last one: {error}"


def charts_of(rows: Iterable[Mapping[str, Any]]) -> list[Chart]:
    """Charts from rows summed over queues: minute, kind, brokerName, brokerId, consumerGroup, messages, ..."""
    messages: dict[str, dict[float, float]] = {}
    seconds: dict[str, dict[float, float]] = {}
    replica_bytes: dict[str, dict[float, float]] = {}
    replica_seconds: dict[str, dict[float, float]] = {}
    for row in rows:
        at = row["minute"].timestamp()
        if row["kind"] == "group":
            _add(messages, row["consumerGroup"], at, row["messages"], sum)
            _add(seconds, row["consumerGroup"], at, row["seconds"], max)
        else:
            name = f"{row['brokerName']}/{'copy' if row['kind'] == 'copy' else row['brokerId']}"
            _add(replica_bytes, name, at, row["bytes"], sum)
            _add(replica_seconds, name, at, row["seconds"], max)
    return [
        Chart("Groups: messages not consumed yet", "messages", _lines(messages)),
        Chart("Groups: age of the next message", "seconds", _lines(seconds)),
        Chart("Replicas: bytes behind their masters", "bytes", _lines(replica_bytes)),
        Chart("Replicas: age of the first record they lack", "seconds", _lines(replica_seconds)),
    ]


def _add(into: dict[str, dict[float, float]], name: str, at: float, value: float | None, join: Any) -> None:
    if value is not None:
        points = into.setdefault(name, {})
        points[at] = float(join((points[at], value))) if at in points else float(value)


def _lines(found: Mapping[str, Mapping[float, float]]) -> dict[str, list[tuple[float, float]]]:
    return {name: sorted(points.items()) for name, points in found.items()}
