"""Archived or stored messages back to a broker, with a map of old to new offsets, and groups placed by it.

    restore(spark, RestoreJob(archive="/data/archive", name_server="127.0.0.1:9876", topics=("Orders",)))

It may be killed and run again: messages that the target already holds are found by their stamps (see `restore_plan`)
and not sent again. At the end the target is read back. That gives the map, and shows that nothing is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinlog.client.errors import NoRoute
from twinlog.client.options import ClientOptions
from twinlog.client.sync import Admin
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import CLUSTER_OPTIONS, ClusterOptions, cluster_options, tls_of
from twinlog.spark.jobs.progress import JobProgress, ReportProgress, quiet, task_progress
from twinlog.spark.jobs.restore.groups import Committed, GroupPlace, committed_offsets, make_groups, place_groups
from twinlog.spark.jobs.restore.map_table import replace_map
from twinlog.spark.jobs.restore.restore_plan import (
    ORIGIN,
    CannotRestore,
    RestoreJob,
    check_restore,
    check_room,
    queue_map,
    queues_needed,
    selection,
)
from twinlog.spark.jobs.restore.send import SENT_COLUMNS, SendQueues
from twinlog.spark.jobs.restore.source import QUEUE, count_wanted, expr_of, open_source
from twinlog.spark.offsets import queue_text, where
from twinlog.spark.option_values import OptionValues
from twinlog.spark.schema import ddl
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue, TopicConfig
from twinlog.wire.codes import MASTER_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)
_TASKS_MAX = 200
_ROUTE_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class RestoredQueue:
    """One queue: messages wanted, sent by this run, present before, and empty (no broker accepts those).

    `gaps` counts the offsets that the source lacks between the first and the last: damaged, or never archived.
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
    map_path: str | None  # None if the map was not kept
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


def restore(spark: SparkSession, job: RestoreJob, report: ReportProgress = quiet) -> RestoreSummary:
    """Send the wanted messages that the target lacks, then write the map and place the groups."""
    check_restore(job)
    cluster = target_cluster(job)
    source = open_source(spark, job)
    report(JobProgress("counting what is to be restored"))
    counts, wanted = count_wanted(source, job)
    targets = _make_topics(job, cluster, counts)
    committed: Committed = {}
    if job.groups:  # a wrong or refused group is an error before hours of sending
        committed = committed_offsets(spark, job, targets)
        with admin_of(cluster) as admin:
            make_groups(admin, Cluster(cluster), job.groups, {targets[queue] for _, queue in committed})
    with task_progress(spark, "sending", report):
        sent = _send(source, job, targets)
    queues = tuple(
        RestoredQueue(queue, targets[queue], of.count, *sent.get(queue, (0, 0, 0)), gaps=of.gaps)
        for queue, of in sorted(wanted.items())
    )
    with task_progress(spark, "reading back", report):
        table, rows, copies = _read_back(spark, job)
    try:
        _check_complete(job, source, queues, table)
        groups: tuple[GroupPlace, ...] = ()
        if job.groups:
            report(JobProgress("placing groups"))
            groups = place_groups(job, Cluster(cluster), committed, table)
    finally:
        table.unpersist()
    return RestoreSummary(queues, None if job.map_place is None else str(job.map_place), rows, copies, groups)


def target_cluster(job: RestoreJob) -> ClusterOptions:
    return cluster_options(OptionValues({**job.cluster_settings, "nameServer": job.name_server}, known=CLUSTER_OPTIONS))


def admin_of(cluster: ClusterOptions) -> Admin:
    """For requests of operators: topics and groups."""
    options = ClientOptions(credentials=cluster.credentials, tls=tls_of(cluster))
    return Admin(";".join(cluster.name_servers), options=options, timeout_ms=cluster.request_timeout_ms)


# -- the target ----------------------------------------------------------------------------------------


def _make_topics(
    job: RestoreJob, cluster: ClusterOptions, counts: Mapping[str, Mapping[str, int]]
) -> dict[MessageQueue, MessageQueue]:
    """The target queue of each source queue; topics that the target lacks are created with as many queues."""
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
    """Wait for the registration: a Java broker registers a new topic a little later."""
    limit = time.monotonic() + _ROUTE_SECONDS_MAX
    while (present := _writable(cluster, topic) or {}) != dict(needed):
        if time.monotonic() > limit:
            problem = f"topic {topic} was created with {dict(needed)} queues, the name server knows {present}"
            raise CannotRestore(
                f"{problem} after {_ROUTE_SECONDS_MAX} s: check the brokers' registration, and run again"
            )
        time.sleep(0.2)


def _send(
    source: DataFrame, job: RestoreJob, targets: Mapping[MessageQueue, MessageQueue]
) -> dict[MessageQueue, tuple[int, int, int]]:
    """Send every queue in one task, in order; returns sent, present and empty messages of each."""
    options = {**job.cluster_settings, "nameServer": job.name_server}
    places = {queue_text(old): queue_text(new) for old, new in targets.items()}
    send = SendQueues(job.name, options, places, job.batch)
    tasks = min(len(targets), _TASKS_MAX)
    frame = source.where(selection(job)).repartition(tasks, *QUEUE).sortWithinPartitions(*QUEUE, "queueOffset")
    rows = frame.mapInArrow(send, ddl(SENT_COLUMNS)).collect()
    return {MessageQueue(*row[:3]): tuple(row[3:]) for row in rows}


# -- the map -------------------------------------------------------------------------------------------


def _read_back(spark: SparkSession, job: RestoreJob) -> tuple[DataFrame, int, int]:
    """The map, from the stamps in the target; how many rows it has, and how many messages are there twice.

    It is kept if the job names a place for it.
    """
    columns = "topic string, brokerName string, queueId int, queueOffset bigint, properties map<string,string>"
    options = {**job.cluster_settings, "nameServer": job.name_server, "topic": ",".join(map(job.new_topic, job.topics))}
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
    table = old.groupBy(*QUEUE, "oldOffset", *places).agg(
        expr_of("min(newOffset) as newOffset"), expr_of("count(*) as copies")
    )
    if job.map_place is None:
        table = table.persist()
    else:
        table = replace_map(spark, table.sortWithinPartitions(*QUEUE, "oldOffset"), job.map_place)
    totals = table.agg(expr_of("count(*) as n"), expr_of("sum(copies - 1) as more")).first()
    assert totals is not None
    return table, totals.n, totals.more or 0


def _check_complete(job: RestoreJob, source: DataFrame, queues: Iterable[RestoredQueue], table: DataFrame) -> None:
    """CannotRestore if the target, of which `table` is the map, lacks a wanted message."""
    table = table.withColumnRenamed("oldOffset", "queueOffset")
    if job.from_ms is not None or job.to_ms is not None:
        # The map has no times, and may hold messages of other times from an earlier run: only the source has them.
        wanted = source.where(selection(job)).where("length(body) > 0").select(*QUEUE, "queueOffset")
        table = table.join(wanted, [*QUEUE, "queueOffset"], "left_semi")
    rows = table.where(selection(replace(job, from_ms=None, to_ms=None)))
    counted = rows.groupBy(*QUEUE).agg(expr_of("count(distinct queueOffset) as found")).collect()
    found = {MessageQueue(*row[:3]): row.found for row in counted}
    for queue in queues:
        have, count = found.get(queue.source, 0), queue.wanted - queue.empty
        if have < count:
            problem = f"{where(queue.source)}: {count} messages were to be restored, the target has {have}"
            raise CannotRestore(f"{problem}: run again; were messages deleted there, or the broker reset?")
