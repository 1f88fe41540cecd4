"""Samples of lag: every minute all brokers of a cluster are asked, and the answers become rows of a table.

The table has a directory for each name server and moment, `source=.../slot=20261115T134800`. A sample replaces the
directory of its moment as a whole, so a repeated or restarted one leaves exactly one row for each moment, group,
topic, broker and queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from twinlog.base.clock import wall_clock_ms
from twinlog.client.errors import ClientError
from twinlog.net.errors import NetError
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.lag.sample import BrokerGroup, LagRow, sample_brokers
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet
from twinlog.spark.jobs.sync_status import BrokerState, by_broker, status_of
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.opening import open_lake
from twinlog.spark.lake.spark_tables import parquet_bytes
from twinlog.spark.paths import table_location
from twinlog.wire.bodies import ClusterInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "kind": "string",
    "cluster": "string",
    "brokerName": "string",
    "brokerId": "bigint",
    "consumerGroup": "string",
    "topic": "string",
    "queueId": "int",
    "brokerOffset": "bigint",
    "consumerOffset": "bigint",
    "lagMessages": "bigint",
    "lagMessagesExact": "boolean",
    "lagBytes": "bigint",
    "lagSeconds": "double",
    "error": "string",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}
_PARTITIONS_MAX = 8
_THREADS = 16  # brokers asked at the same time by one task


@dataclass(frozen=True, slots=True, kw_only=True)
class LagJob:
    cluster: ClusterOptions
    to: str
    groups: tuple[str, ...] = ()  # names or patterns with * and ?; empty means all
    every_s: float = 60.0
    for_s: float | None = 0.0  # 0 takes one sample; None continues until stopped
    copies: str | None = None  # the directory of a synchronisation, whose copies are measured too


@dataclass(frozen=True, slots=True)
class LagSummary:
    """Totals of all samples; `latest` are the rows of the last one."""

    samples: int
    rows: int
    errors: int
    missed: int  # moments that passed while a sample was taken
    latest: tuple[LagRow, ...]


def lag(
    spark: SparkSession,
    job: LagJob,
    report: ReportProgress = quiet,
    *,
    clock: Callable[[], float] = lambda: wall_clock_ms() / 1000,
    sleep: Callable[[float], None] = time.sleep,
) -> LagSummary:
    """Take samples until the time is over; Ctrl-C ends it and keeps what was written."""
    if not job.cluster.name_servers:
        raise BadOption("lag needs a name server: give --namesrvAddr host:port")
    table_location(job.to, "--to")
    if job.every_s < 1:
        raise BadOption(f"a sample every {job.every_s:g} s is too often: Spark itself needs about one")
    samples = rows = errors = missed = 0
    latest: tuple[LagRow, ...] = ()
    until = None if job.for_s is None else clock() + job.for_s
    total = None if job.for_s is None else int(job.for_s // job.every_s) + 1
    slot = slot_of(clock(), job.every_s)
    try:
        while True:
            report(JobProgress(f"sampling {datetime.fromtimestamp(slot, UTC):%H:%M:%S}", samples, total, "samples"))
            latest = take_sample(spark, job, slot, is_first=not samples)
            samples, rows = samples + 1, rows + len(latest)
            errors += sum(one.kind == "error" for one in latest)
            following, now = slot + job.every_s, clock()
            if now >= following + job.every_s:
                late = slot_of(now, job.every_s)
                missed += round((late - following) / job.every_s)
                following = late
            slot = following
            if until is not None and slot > until:
                break
            behind = sum(one.messages or 0 for one in latest if one.kind == "group")
            report(JobProgress(f"{behind} messages behind, {errors} errors so far", samples, total, "samples"))
            sleep(max(0.0, slot - clock()))
    except KeyboardInterrupt:
        if not samples:
            raise
    return LagSummary(samples, rows, errors, missed, latest)


def take_sample(spark: SparkSession, job: LagJob, slot: float, *, is_first: bool = True) -> tuple[LagRow, ...]:
    """Ask all brokers and write their answers to the table; only the first sample fails without a name server."""
    copies = by_broker(None if job.copies is None else status_of(job.copies))
    try:
        brokers = broker_groups(Cluster(job.cluster).info())
    except (NetError, ClientError) as error:
        if is_first:
            raise
        found = [astuple(LagRow(kind="error", cluster="", broker_name="", error=str(error)))]
    else:
        partitions = min(max(len(brokers), 1), _PARTITIONS_MAX)
        run = partial(_run_samples, tuple(brokers), job, copies)
        found = spark.range(0, len(brokers), 1, partitions).mapInArrow(run, SCHEMA).collect()
        found += [astuple(one) for one in lost_copies(copies, brokers)]
    moment = datetime.fromtimestamp(slot, UTC)
    if found:
        place = parse_address(job.to, "--to")
        if place.is_local:
            _save_by_spark(spark, job, found, moment)
        else:
            save_sample(open_lake(spark, place), job.cluster.name_servers, found, moment)
    return tuple(LagRow(**dict(zip(LagRow.__slots__, row, strict=True))) for row in found)


def lost_copies(copies: Mapping[str, BrokerState], brokers: Iterable[BrokerGroup]) -> list[LagRow]:
    """Rows for copies of brokers that no name server knows any more."""
    gone = sorted(copies.keys() - {one.name for one in brokers})
    why = "there is a copy, and no such broker is registered: its lag cannot be measured"
    return [LagRow(kind="error", cluster="", broker_name=name, broker_id=None, error=why) for name in gone]


def _save_by_spark(spark: SparkSession, job: LagJob, found: Sequence[Sequence[Any]], moment: datetime) -> None:
    from pyspark.sql import functions as F

    table = spark.createDataFrame([tuple(row) for row in found], SCHEMA).select(
        F.lit(moment).alias("minute"),
        F.lit(datetime.now(UTC)).alias("sampledAt"),
        *COLUMNS,
        F.lit(";".join(job.cluster.name_servers)).alias("source"),
        F.lit(f"{moment:%Y%m%dT%H%M%S}").alias("slot"),
    )
    writer = table.coalesce(1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("source", "slot").parquet(job.to)


def save_sample(lake: Lake, name_servers: Sequence[str], found: Sequence[Sequence[Any]], moment: datetime) -> None:
    """Replace the sample of a moment in one step: it is one file, whose name does not change."""
    times = {"minute": moment, "sampledAt": datetime.now(UTC)}
    columns = {name: pa.array([value] * len(found), pa.timestamp("us", tz="UTC")) for name, value in times.items()}
    values = list(zip(*found, strict=True))
    for (name, kind), column in zip(COLUMNS.items(), values, strict=True):
        columns[name] = pa.array(column, _ARROW[kind])
    folder = f"source={quote(';'.join(name_servers), safe='')}/slot={moment:%Y%m%dT%H%M%S}"
    lake.write(f"{folder}/sample.parquet", parquet_bytes(pa.table(columns)))


def slot_of(seconds: float, every_s: float) -> float:
    """The moment that a sample taken now belongs to."""
    return seconds - seconds % every_s


def broker_groups(info: ClusterInfo) -> list[BrokerGroup]:
    cluster_of = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    return [
        BrokerGroup(cluster_of.get(name, one.cluster), name, dict(one.broker_addrs))
        for name, one in sorted(info.broker_addr_table.items())
    ]


def as_batch(rows: Sequence[LagRow]) -> pa.RecordBatch:
    columns = list(zip(*(astuple(row) for row in rows), strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(values, _ARROW[kind]) for values, kind in zip(columns, COLUMNS.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def _run_samples(
    brokers: Sequence[BrokerGroup],
    job: LagJob,
    copies: Mapping[str, BrokerState],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]

    def ask(number: int) -> list[LagRow]:
        one = brokers[number]
        return list(sample_brokers(one, job.cluster, job.groups, wall_clock_ms, copies.get(one.name)))

    with ThreadPoolExecutor(_THREADS) as pool:
        for rows in pool.map(ask, numbers):
            if rows:
                yield as_batch(rows)
