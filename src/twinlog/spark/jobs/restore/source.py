"""The source of a restore: an archive or stores as one table, and how much of it is wanted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.job import read_archive
from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.jobs.conditions import IN_A_QUEUE, sql_text
from twinlog.spark.jobs.restore.restore_plan import RestoreJob, selection
from twinlog.spark.offsets import where
from twinlog.spark.schema import MESSAGE_COLUMNS, ddl
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

log = get_logger(__name__)
QUEUE = ("topic", "brokerName", "queueId")
_COLUMNS = (*QUEUE, "queueOffset", "storeTimestamp", "body", "flag", "properties")


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many messages of a queue are wanted, and how many between them the source lacks."""

    count: int
    gaps: int


def open_source(spark: SparkSession, job: RestoreJob) -> DataFrame:
    """All messages of the topics, with the columns that a restore needs."""
    if job.archive is not None:
        frame = read_archive(spark, job.archive)
        missing = [name for name in _COLUMNS if name not in frame.columns]
        if "body" in missing:
            raise BadArchive(f"the archive {job.archive} has no bodies: archive with all columns to restore from it")
        if missing:
            log.warning("the archive lacks columns of a message: these are not restored", lacks=missing)
        frame = frame.selectExpr(*(name if name not in missing else f"null as {name}" for name in _COLUMNS))
    else:
        columns = {name: MESSAGE_COLUMNS[name] for name in (*_COLUMNS, "sysFlag")}
        reader = _store_reader(spark, job).schema(ddl(columns)).option("topic", ",".join(job.topics))
        frame = reader.load().where(IN_A_QUEUE)
    return frame.where(f"topic in ({', '.join(map(sql_text, job.topics))})")


def _store_reader(spark: SparkSession, job: RestoreJob) -> DataFrameReader:
    reader = spark.read.format("rocketmq_store").options(**job.store_settings)
    return reader.option("paths", json.dumps(list(job.stores)))


def count_wanted(source: DataFrame, job: RestoreJob) -> tuple[dict[str, dict[str, int]], dict[MessageQueue, Wanted]]:
    """Topic -> broker -> number of queues, and the wanted messages of each queue."""
    chosen = f"case when {selection(job)} then queueOffset end"
    numbers = (f"count(distinct {chosen}) as wanted", f"min({chosen}) as low", f"max({chosen}) as high")
    rows = source.groupBy(*QUEUE).agg(*map(expr_of, numbers)).collect()
    counts: dict[str, dict[str, int]] = {}
    wanted: dict[MessageQueue, Wanted] = {}
    for row in rows:
        brokers = counts.setdefault(row.topic, {})
        brokers[row.brokerName] = max(brokers.get(row.brokerName, 0), row.queueId + 1)
        if row.wanted:
            queue = MessageQueue(row.topic, row.brokerName, row.queueId)
            wanted[queue] = Wanted(row.wanted, row.high - row.low + 1 - row.wanted)
            if wanted[queue].gaps:
                log.warning("the source lacks messages between others", where=where(queue), count=wanted[queue].gaps)
    for topic in job.topics:
        if topic not in counts:
            place = job.archive or ", ".join(job.stores)
            raise BadOption(f"there is no message of topic {topic} in {place}: check the name")
    if not wanted:
        raise BadOption(f"no message of {', '.join(job.topics)} is within the wanted times, offsets and queues")
    if job.stores:
        _add_empty_queues(source.sparkSession, job, counts)
    return counts, wanted


def _add_empty_queues(spark: SparkSession, job: RestoreJob, counts: dict[str, dict[str, int]]) -> None:
    """A store also holds the number of a topic's queues, with those that have no message."""
    for row in _store_reader(spark, job).option("kind", "topic_configs").load().collect():
        brokers = counts.get(row.topic, {})
        if row.brokerName in brokers:
            brokers[row.brokerName] = max(brokers[row.brokerName], row.writeQueueNums)


def expr_of(text: str):
    from pyspark.sql.functions import expr

    return expr(text)
