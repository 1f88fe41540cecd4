"""Consumer groups continue where they were: at the new offset of the first message that they had not consumed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.client.errors import ClientError
from twinlog.client.sync import Admin
from twinlog.net.errors import NetError
from twinlog.spark.cluster import Cluster
from twinlog.spark.cluster_options import CLUSTER_OPTIONS, cluster_options
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.restore.restore_plan import RestoreJob
from twinlog.spark.offsets import Offsets, where
from twinlog.spark.option_values import OptionValues
from twinlog.spark.paths import local_text
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue, SubscriptionGroupConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)
Committed = dict[tuple[str, MessageQueue], int]  # (group, queue) -> the next offset of the group


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group was in a queue, and where it continues."""

    group: str
    source: MessageQueue
    old_offset: int
    target: MessageQueue
    new_offset: int


def make_groups(admin: Admin, masters: Cluster, groups: Iterable[str], queues: Iterable[MessageQueue]) -> None:
    """Create the groups on those masters of `queues` that lack them: a broker may refuse offsets of unknown groups."""
    for address in sorted({masters.address_of(queue) for queue in queues}):
        present = admin.groups(address).subscription_group_table
        for group in groups:
            if group not in present:
                admin.save_group(address, SubscriptionGroupConfig(group_name=group))


def place_groups(job: RestoreJob, masters: Cluster, committed: Committed, table: DataFrame) -> tuple[GroupPlace, ...]:
    """Commit the offsets of the job's groups at the target, by the new map (`table`), and read them back."""
    places = new_places(committed, table)
    for group in job.groups:
        offsets: Offsets = {place.target: place.new_offset for place in places if place.group == group}
        if offsets:
            masters.commit(group, offsets)
        left = sorted({q for one, q in committed if one == group} - {p.source for p in places if p.group == group})
        if left:
            log.warning(
                "a group had read queues of which nothing was restored", group=group, queues=[*map(where, left)]
            )
    return places


def new_places(committed: Committed, table: DataFrame) -> tuple[GroupPlace, ...]:
    """For each group and queue the new offset of the first message not consumed; the end if all were consumed.

    A queue of which nothing was restored is left out.
    """
    from pyspark.sql.functions import expr

    rows = [(group, q.topic, q.broker_name, q.queue_id, at) for (group, q), at in sorted(committed.items())]
    old = table.sparkSession.createDataFrame(
        rows, "consumerGroup string, topic string, brokerName string, queueId int, committed bigint"
    )
    keys = ("consumerGroup", "topic", "brokerName", "queueId", "committed", "newTopic", "newBrokerName", "newQueueId")
    first = "coalesce(min(case when oldOffset >= committed then newOffset end), max(newOffset) + 1) as place"
    found = old.join(table, ["topic", "brokerName", "queueId"]).groupBy(*keys).agg(expr(first)).collect()
    places = [
        GroupPlace(
            row.consumerGroup,
            MessageQueue(row.topic, row.brokerName, row.queueId),
            row.committed,
            MessageQueue(row.newTopic, row.newBrokerName, row.newQueueId),
            row.place,
        )
        for row in found
    ]
    return tuple(sorted(places, key=lambda place: (place.group, place.source)))


def committed_offsets(spark: SparkSession, job: RestoreJob, queues: Mapping[MessageQueue, MessageQueue]) -> Committed:
    """The offsets of the groups, from a store's consumerOffset.json or from a live cluster."""
    text = job.group_offsets or ""
    name, _, directory = text.rpartition("=")
    directory = local_text(directory, "--group-offsets")
    if Path(directory).is_dir():
        found = _from_store(spark, name, directory)
        known = {key: at for key, at in found.items() if key[1] in queues}
        others = sorted({group for group, _ in found})
        names = ", ".join(sorted({queue.broker_name for _, queue in found})) or "no broker"
        hint = f"it knows {', '.join(others[:10]) or 'no group'} of {names}; write broker-a={directory} to name it"
    else:
        known = _from_cluster(job, text, queues)
        hint = "it committed nothing there"
    for group in job.groups:
        if not any(key[0] == group for key in known):
            raise BadOption(f"group {group} has no offset for {', '.join(job.topics)} in {text}: {hint}")
    return {key: at for key, at in known.items() if key[0] in job.groups}


def _from_store(spark: SparkSession, name: str, directory: str) -> Committed:
    reader = spark.read.format("rocketmq_store").option("kind", "consumer_offsets")
    if name:
        reader = reader.option("brokerName", name)
    rows = reader.option("paths", json.dumps([directory])).load().collect()
    return {(row.consumerGroup, MessageQueue(row.topic, row.brokerName, row.queueId)): row.offset for row in rows}


def _from_cluster(job: RestoreJob, name_server: str, queues: Mapping[MessageQueue, MessageQueue]) -> Committed:
    try:
        cluster = Cluster(
            cluster_options(OptionValues({**job.cluster_settings, "nameServer": name_server}, known=CLUSTER_OPTIONS))
        )
        present = set(cluster.queues({queue.topic for queue in queues}))
        wanted = [queue for queue in queues if queue in present]
        return {(group, queue): at for group in job.groups for queue, at in cluster.committed(group, wanted).items()}
    except (NetError, ClientError) as error:
        problem = f"--group-offsets {name_server!r} is not a store directory, and no cluster answers there"
        raise BadOption(f"{problem}: {error}") from error
