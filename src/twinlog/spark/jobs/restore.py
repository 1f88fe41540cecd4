"""Archived or stored messages back to a broker, with a map of old to new offsets, and groups placed by it.

    restore(spark, RestoreJob(archive="/data/archive", name_server="127.0.0.1:9876", topics=("Orders",)))

It may be killed and run again: messages that are in the target already are known by their stamps (see restore_plan) and
are not sent twice. In the end the target is read back. That gives the map, and shows that nothing is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.client.errors import NoRoute
from twinlog.client.options import ClientOptions, tls_context
from twinlog.client.sync import Admin
from twinlog.spark.cluster import MASTER_ID, Cluster
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive import IN_A_QUEUE, read_archive
from twinlog.spark.jobs.archive_files import exchange
from twinlog.spark.jobs.archive_layout import BadArchive
from twinlog.spark.jobs.progress import Progress, Report, quiet, task_progress
from twinlog.spark.jobs.restore_groups import Committed, GroupPlace, committed_offsets, make_groups, place_groups
from twinlog.spark.jobs.restore_plan import (
    ORIGIN,
    CannotRestore,
    RestoreJob,
    check_restore,
    check_room,
    queue_map,
    queues_needed,
    selection,
    sql_text,
)
from twinlog.spark.jobs.restore_send import SENT_COLUMNS, SendQueues
from twinlog.spark.offsets import queue_text, where
from twinlog.spark.option_values import OptionValues
from twinlog.spark.options import CLUSTER_OPTIONS, ClusterOptions, cluster_options
from twinlog.spark.paths import local_path
from twinlog.spark.schema import MESSAGE_COLUMNS, ddl
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue, TopicConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

log = get_logger(__name__)
_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "body", "flag", "properties")
_QUEUE = ("topic", "brokerName", "queueId")
_TASKS_MAX = 200
_ROUTE_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many messages of a queue are wanted, and how many between them the source does not have."""

    count: int
    gaps: int


@dataclass(frozen=True, slots=True)
class RestoredQueue:
    """One queue: what was wanted, what this run sent, what was there already, and what no broker takes (no body).

    `gaps` counts offsets between the first and the last that the source does not have: damaged, or never archived.
    """

    source: MessageQueue
    target: MessageQueue
    wanted: int
    sent: int = 0
    present: int = 0
    empty: int = 0
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    """What one run did; `copies` counts messages that the target holds more than once."""

    queues: tuple[RestoredQueue, ...]
    map_path: str
    map_rows: int
    copies: int
    groups: tuple[GroupPlace, ...]

    @property
    def sent(self) -> int:
        return sum(queue.sent for queue in self.queues)

    @property
    def present(self) -> int:
        return sum(queue.present for queue in self.queues)

    @property
    def empty(self) -> int:
        return sum(queue.empty for queue in self.queues)

    @property
    def gaps(self) -> int:
        return sum(queue.gaps for queue in self.queues)


def restore(spark: SparkSession, job: RestoreJob, report: Report = quiet) -> RestoreSummary:
    """Send what is wanted and not there yet, then write the map and place the groups."""
    check_restore(job)
    cluster = target_cluster(job)
    source = _source(spark, job)
    report(Progress("counting what is to be restored"))
    counts, wanted = _count(source, job)
    targets = _make_topics(job, cluster, counts)
    stood: Committed = {}
    if job.groups:  # a wrong name, or a group that cannot be made, is an error before hours of sending
        stood = committed_offsets(spark, job, targets)
        with admin_of(cluster) as admin:
            make_groups(admin, Cluster(cluster), job.groups, {targets[queue] for _, queue in stood})
    with task_progress(spark, "sending", report):
        sent = _send(source, job, targets)
    queues = tuple(
        RestoredQueue(queue, targets[queue], of.count, *sent.get(queue, (0, 0, 0)), gaps=of.gaps)
        for queue, of in sorted(wanted.items())
    )
    with task_progress(spark, "reading back", report):
        rows, copies = _write_map(spark, job)
    _check_complete(spark, job, source, queues)
    groups: tuple[GroupPlace, ...] = ()
    if job.groups:
        report(Progress("placing groups"))
        groups = place_groups(spark, job, Cluster(cluster), stood)
    return RestoreSummary(queues, str(job.map_root), rows, copies, groups)


def target_cluster(job: RestoreJob) -> ClusterOptions:
    return cluster_options(OptionValues({**job.cluster_words, "nameServer": job.name_server}, known=CLUSTER_OPTIONS))


def admin_of(cluster: ClusterOptions) -> Admin:
    """For what only an operator asks."""
    files = {"ca_file": cluster.tls_ca_file, "cert_file": cluster.tls_cert_file, "key_file": cluster.tls_key_file}
    tls = tls_context(**files, verify=cluster.tls_verify) if cluster.tls else None
    options = ClientOptions(credentials=cluster.credentials, tls=tls)
    return Admin(";".join(cluster.name_servers), options=options, timeout_ms=cluster.request_timeout_ms)


# -- the source ----------------------------------------------------------------------------------------


def _source(spark: SparkSession, job: RestoreJob) -> DataFrame:
    """All messages of the topics, with the columns that a restore needs."""
    if job.archive_root is not None:
        frame = read_archive(spark, job.archive_root)
        missing = [name for name in _COLUMNS if name not in frame.columns]
        if "body" in missing:
            raise BadArchive(f"the archive {job.archive} keeps no bodies: archive with all columns to restore from it")
        if missing:
            log.warning("the archive does not keep all of a message: what it lacks is not restored", lacks=missing)
        frame = frame.selectExpr(*(name if name not in missing else f"null as {name}" for name in _COLUMNS))
    else:
        columns = {name: MESSAGE_COLUMNS[name] for name in (*_COLUMNS, "sysFlag")}
        reader = _store_reader(spark, job).schema(ddl(columns)).option("topic", ",".join(job.topics))
        frame = reader.load().where(IN_A_QUEUE)
    return frame.where(f"topic in ({', '.join(map(sql_text, job.topics))})")


def _store_reader(spark: SparkSession, job: RestoreJob) -> DataFrameReader:
    reader = spark.read.format("rocketmq_store").options(**job.store_words)
    return reader.option("paths", json.dumps(list(job.stores)))


def _count(source: DataFrame, job: RestoreJob) -> tuple[dict[str, dict[str, int]], dict[MessageQueue, Wanted]]:
    """Topic -> broker -> number of queues, and what is wanted of each queue."""
    chosen = f"case when {selection(job)} then queueOffset end"
    numbers = (f"count(distinct {chosen}) as wanted", f"min({chosen}) as low", f"max({chosen}) as high")
    rows = source.groupBy(*_QUEUE).agg(*map(_expr, numbers)).collect()
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
    """A store knows how many queues a topic had, also those without a message."""
    for row in _store_reader(spark, job).option("kind", "topic_configs").load().collect():
        brokers = counts.get(row.topic, {})
        if row.brokerName in brokers:
            brokers[row.brokerName] = max(brokers[row.brokerName], row.writeQueueNums)


def _expr(text: str):
    from pyspark.sql.functions import expr

    return expr(text)


# -- the target ----------------------------------------------------------------------------------------


def _make_topics(
    job: RestoreJob, cluster: ClusterOptions, counts: Mapping[str, Mapping[str, int]]
) -> dict[MessageQueue, MessageQueue]:
    """The queue of each source queue; topics that the target does not have are created like the source's."""
    targets: dict[MessageQueue, MessageQueue] = {}
    with admin_of(cluster) as admin:
        info = admin.cluster_info()
        masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs
        }
        for topic, source in sorted(counts.items()):
            new_topic = job.new_topic(topic)
            present = _writable(cluster, new_topic)
            found = queue_map(topic, new_topic, source, present or masters)
            needed = queues_needed(found.values())
            if present is None:
                for broker, count in sorted(needed.items()):
                    config = TopicConfig(topic_name=new_topic, read_queue_nums=count, write_queue_nums=count)
                    admin.save_topic(masters[broker], config)
                _wait_for_route(cluster, new_topic, needed)
            else:
                check_room(new_topic, needed, present)
            targets |= found
    return targets


def _writable(cluster: ClusterOptions, topic: str) -> dict[str, int] | None:
    """Broker name -> writable queues of a topic; None for a topic that does not exist."""
    try:
        route = Cluster(cluster).route(topic)
    except NoRoute:
        return None
    present: dict[str, int] = {}
    for queue in route.writable:
        present[queue.broker_name] = max(present.get(queue.broker_name, 0), queue.queue_id + 1)
    return present


def _wait_for_route(cluster: ClusterOptions, topic: str, needed: Mapping[str, int]) -> None:
    """A Java broker tells the name servers of a new topic a little later."""
    limit = time.monotonic() + _ROUTE_SECONDS_MAX
    while (present := _writable(cluster, topic) or {}) != dict(needed):
        if time.monotonic() > limit:
            told = f"topic {topic} was created with {dict(needed)} queues, the name server knows {present}"
            raise CannotRestore(f"{told} after {_ROUTE_SECONDS_MAX} s: check the brokers' registration, run it again")
        time.sleep(0.2)


def _send(
    source: DataFrame, job: RestoreJob, targets: Mapping[MessageQueue, MessageQueue]
) -> dict[MessageQueue, tuple[int, int, int]]:
    """Every queue goes to one task, in order; sent, present and empty messages of each."""
    options = {**job.cluster_words, "nameServer": job.name_server}
    places = {queue_text(old): queue_text(new) for old, new in targets.items()}
    send = SendQueues(job.name, options, places, job.batch)
    tasks = min(len(targets), _TASKS_MAX)
    frame = source.where(selection(job)).repartition(tasks, *_QUEUE).sortWithinPartitions(*_QUEUE, "queueOffset")
    rows = frame.mapInArrow(send, ddl(SENT_COLUMNS)).collect()
    return {MessageQueue(*row[:3]): tuple(row[3:]) for row in rows}


# -- the map -------------------------------------------------------------------------------------------


def read_map(spark: SparkSession, path: str | Path) -> DataFrame:
    """Old and new place of every message that was restored."""
    return spark.read.parquet(str(local_path(path, "map")))


def _write_map(spark: SparkSession, job: RestoreJob) -> tuple[int, int]:
    """Read the stamps of the target, and replace the map; its rows, and the messages that are there twice."""
    columns = "topic string, brokerName string, queueId int, queueOffset bigint, properties map<string,string>"
    options = {**job.cluster_words, "nameServer": job.name_server, "topic": ",".join(map(job.new_topic, job.topics))}
    stored = spark.read.schema(columns).format("rocketmq").options(**options).load()
    stored = stored.selectExpr("*", f"properties['{ORIGIN}'] as origin").where(f"startswith(origin, '{job.name}:')")
    # <name>:<topic>@<broker>@<queue>@<offset>
    parts = f"substring(origin, {len(job.name) + 2})"
    pattern = "'^([^@]+)@(.+)@([0-9]+)@([0-9]+)$'"
    old = stored.selectExpr(
        f"regexp_extract({parts}, {pattern}, 1) as topic",
        f"regexp_extract({parts}, {pattern}, 2) as brokerName",
        f"cast(regexp_extract({parts}, {pattern}, 3) as int) as queueId",
        f"cast(regexp_extract({parts}, {pattern}, 4) as bigint) as oldOffset",
        "topic as newTopic",
        "brokerName as newBrokerName",
        "queueId as newQueueId",
        "queueOffset as newOffset",
    )
    places = ("newTopic", "newBrokerName", "newQueueId")
    table = old.groupBy(*_QUEUE, "oldOffset", *places).agg(
        _expr("min(newOffset) as newOffset"), _expr("count(*) as copies")
    )
    path = job.map_root
    aside = path.with_name(f"{path.name}.new")
    table.sortWithinPartitions(*_QUEUE, "oldOffset").write.mode("overwrite").parquet(str(aside))
    told = spark.read.parquet(str(aside)).agg(_expr("count(*) as n"), _expr("sum(copies - 1) as more")).first()
    assert told is not None
    _replace(path, aside)
    return told.n, told.more or 0


def _replace(path: Path, aside: Path) -> None:
    if path.exists():
        try:
            exchange(aside, path)
        except BadArchive:  # a file system without an exchange: for a moment there is no map
            shutil.rmtree(path)
            os.rename(aside, path)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(aside)
    else:
        os.rename(aside, path)


def _check_complete(spark: SparkSession, job: RestoreJob, source: DataFrame, queues: Iterable[RestoredQueue]) -> None:
    """CannotRestore when the target does not hold all that was wanted."""
    table = read_map(spark, job.map_path).withColumnRenamed("oldOffset", "queueOffset")
    if job.from_ms is not None or job.to_ms is not None:
        # The map has no times, and may hold messages of other times from a run before: only the source can tell.
        wanted = source.where(selection(job)).where("length(body) > 0").select(*_QUEUE, "queueOffset")
        table = table.join(wanted, [*_QUEUE, "queueOffset"], "left_semi")
    rows = table.where(selection(replace(job, from_ms=None, to_ms=None)))
    counted = rows.groupBy(*_QUEUE).agg(_expr("count(distinct queueOffset) as found")).collect()
    found = {MessageQueue(*row[:3]): row.found for row in counted}
    for queue in queues:
        have, count = found.get(queue.source, 0), queue.wanted - queue.empty
        if have < count:
            told = f"{where(queue.source)}: {count} messages were to be restored, the target has {have}"
            raise CannotRestore(f"{told}: run it again; are messages deleted there, or the broker set back?")
