"""What a restore sends where, without Spark and without a socket.

Every message that is sent carries where it came from, as a property:

    TWINLOG_ORIGIN = <name of the restore>:<topic>@<broker>@<queue>@<offset>

By these stamps a restore that is run again finds what the target already holds, and the map of old to new offsets is
read from the target itself. Each queue of the source has its own queue of the target, so order is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.base.system_names import is_retry_or_dlq
from twinlog.spark.cluster_options import CLUSTER_OPTIONS
from twinlog.spark.errors import BadOption, SparkSourceError
from twinlog.spark.jobs.conditions import sql_text
from twinlog.spark.lake.address import Address, parse_address
from twinlog.spark.offsets import queue_text, where
from twinlog.spark.option_values import OptionValues
from twinlog.spark.paths import local_text
from twinlog.wire import properties as names
from twinlog.wire.batch import BatchElement
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.properties import PROPERTIES_BYTES_MAX, encode_properties

ORIGIN = "TWINLOG_ORIGIN"
BATCH_BYTES_MAX = 1 << 20
BATCH_COUNT_MAX = 500
STORE_OPTIONS = ("brokerName", "commitLogDirs", "checkCrc", "failOnDataLoss", "splitBytes")
_OF_STORES = frozenset(name.lower() for name in STORE_OPTIONS)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Properties that brokers and clients use themselves: sent again, they would delay, hide or split a message.
_DROPPED = frozenset(
    (
        names.WAIT,
        names.DELAY,
        names.CLUSTER,
        names.MSG_REGION,
        names.TRACE_ON,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TRAN_MSG,
        names.PGROUP,
        names.TRANSACTION_ID,
        names.TRANSACTION_CHECK_TIMES,
        names.TRAN_PREPARED_QUEUE_OFFSET,
        names.CHECK_IMMUNITY_TIME,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_OUT_MS,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_DEL_UNIQKEY,
        names.INNER_NUM,
        names.INNER_BASE,
        names.CRC32,
        names.POP_CK,
    )
)


class CannotRestore(SparkSourceError):
    """The target refuses messages, or the restore is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreJob:
    """What to restore, and where to; give `archive` or `stores`."""

    name_server: str
    topics: tuple[str, ...]
    archive: str | Path | None = None
    stores: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)  # old topic -> new topic
    from_ms: int | None = None  # store times, the end excluded
    to_ms: int | None = None
    from_offset: int | None = None  # of every queue, the end excluded
    to_offset: int | None = None
    brokers: tuple[str, ...] = ()  # only messages of these
    queues: tuple[int, ...] = ()
    name: str = "restore"
    map_path: str | Path | None = None  # where the table of old and new offsets is kept
    groups: tuple[str, ...] = ()
    group_offsets: str | None = None  # a store directory, name=directory, or a name server
    batch: int = BATCH_COUNT_MAX  # messages per request at most
    options: Mapping[str, str] = field(default_factory=dict)  # of the cluster and of the stores: see below

    @property
    def archive_place(self) -> Address | None:
        return None if self.archive is None else parse_address(self.archive, "--archive")

    @property
    def map_place(self) -> Address | None:
        return None if self.map_path is None else parse_address(self.map_path, "--map")

    @property
    def cluster_settings(self) -> dict[str, str]:
        """The options of clusters: credentials, TLS, time limits."""
        return {name: value for name, value in self.options.items() if name.lower() not in _OF_STORES}

    @property
    def store_settings(self) -> dict[str, str]:
        """The options of `format("rocketmq_store")`."""
        return {name: value for name, value in self.options.items() if name.lower() in _OF_STORES}

    def new_topic(self, topic: str) -> str:
        return self.renames.get(topic, topic)


def check_restore(job: RestoreJob) -> None:
    """BadOption for an invalid description, before anything is started."""
    if (job.archive is None) == (not job.stores):
        raise BadOption("give an archive or store directories to restore from, and not both")
    if not job.topics:
        raise BadOption("name the topics to restore, for example -t Orders")
    if not _NAME.fullmatch(job.name):
        raise BadOption(f"the name {job.name!r} of the restore may hold letters, digits, dots, - and _ only")
    for topic in job.renames:
        if topic not in job.topics:
            raise BadOption(f"topic {topic} is renamed but not restored: add -t {topic}")
    targets = [job.new_topic(topic) for topic in job.topics]
    for topic in targets:
        if targets.count(topic) > 1:
            raise BadOption(f"two topics would become {topic}: their queues would mix; restore them apart")
    for low, high, what in ((job.from_ms, job.to_ms, "time"), (job.from_offset, job.to_offset, "offset")):
        if low is not None and high is not None and low >= high:
            raise BadOption(f"the range of {what}s from {low} to {high} is empty: give an end after the start")
    if job.groups and not job.group_offsets:
        raise BadOption(
            "the offsets of the groups are missing: give --group-offsets with a store directory or a name server"
        )
    if job.group_offsets and not job.groups:
        raise BadOption("--group-offsets has no effect without --groups: name the groups")
    OptionValues({**job.options, "nameServer": job.name_server}, known=(*CLUSTER_OPTIONS, *STORE_OPTIONS))
    if job.store_settings and not job.stores:
        raise BadOption(f"{next(iter(job.store_settings))} is an option of stores: give it together with --store")
    _check_paths(job)


def _check_paths(job: RestoreJob) -> None:
    _ = job.archive_place, job.map_place
    for store in job.stores:
        local_text(store, "--store")
    if job.group_offsets:
        local_text(job.group_offsets.rpartition("=")[2], "--group-offsets")  # host:port passes as well


def selection(job: RestoreJob) -> str:
    """The condition, in SQL, for the messages within the wanted times, offsets, brokers and queues."""
    parts = []
    if job.from_ms is not None:
        parts.append(f"storeTimestamp >= timestamp_millis({job.from_ms})")
    if job.to_ms is not None:
        parts.append(f"storeTimestamp < timestamp_millis({job.to_ms})")
    if job.from_offset is not None:
        parts.append(f"queueOffset >= {job.from_offset}")
    if job.to_offset is not None:
        parts.append(f"queueOffset < {job.to_offset}")
    if job.brokers:
        parts.append(f"brokerName in ({', '.join(map(sql_text, job.brokers))})")
    if job.queues:
        parts.append(f"queueId in ({', '.join(map(str, job.queues))})")
    return " and ".join(parts) or "true"


# -- queues --------------------------------------------------------------------------------------------

QueueCounts = Mapping[str, int]  # broker name -> how many queues of a topic it has


def queue_map(
    topic: str, new_topic: str, source: QueueCounts, brokers: Iterable[str]
) -> dict[MessageQueue, MessageQueue]:
    """The queue of the target that each queue of the source goes to.

    A broker's queues go to the broker of the same name, if there is one. Those of other brokers are distributed. A
    broker that takes the queues of several others gets more queues: no two source queues share one.
    """
    targets = sorted(brokers)
    if not targets:
        raise CannotRestore(f"topic {new_topic}: the target cluster has no master; start one, or check the name server")
    taken = {name: source[name] for name in source if name in targets}
    found = {
        MessageQueue(topic, name, queue): MessageQueue(new_topic, name, queue)
        for name in taken
        for queue in range(source[name])
    }
    for name in sorted(set(source) - set(targets)):
        target = min(targets, key=lambda one: (taken.get(one, 0), one))
        base = taken.get(target, 0)
        for queue in range(source[name]):
            found[MessageQueue(topic, name, queue)] = MessageQueue(new_topic, target, base + queue)
        taken[target] = base + source[name]
    return dict(sorted(found.items()))


def queues_needed(queues: Iterable[MessageQueue]) -> dict[str, int]:
    """Broker name -> how many queues the target topic must have there."""
    needed: dict[str, int] = {}
    for queue in queues:
        needed[queue.broker_name] = max(needed.get(queue.broker_name, 0), queue.queue_id + 1)
    return needed


def check_room(topic: str, needed: Mapping[str, int], present: Mapping[str, int]) -> None:
    """CannotRestore if an existing topic has too few queues to keep order."""
    for broker, count in sorted(needed.items()):
        have = present.get(broker, 0)
        if have < count:
            hint = f"give it {count}, or restore to a new name with --rename"
            raise CannotRestore(f"topic {topic} has {have} writable queues on {broker}, the source has {count}: {hint}")


# -- messages ------------------------------------------------------------------------------------------


def stamp_prefix(name: str, queue: MessageQueue) -> str:
    return f"{name}:{queue_text(queue)}@"


def element(
    name: str, queue: MessageQueue, offset: int, body: bytes, flag: int, properties: Mapping[str, str]
) -> BatchElement:
    """A message as it is sent: its own properties, and its origin."""
    kept = {key: value for key, value in properties.items() if key not in _DROPPED and key != ORIGIN and value}
    text = encode_properties({**kept, ORIGIN: f"{stamp_prefix(name, queue)}{offset}"})
    if len(text) > PROPERTIES_BYTES_MAX:
        hint = f"the limit is {PROPERTIES_BYTES_MAX}; leave this message out by offsets"
        raise CannotRestore(f"{where(queue, offset)}: its properties and its origin take {len(text)} bytes: {hint}")
    return BatchElement(body, text, flag)


def sends_alone(topic: str) -> bool:
    """Brokers refuse batches for the topics of retries and dead letters."""
    return is_retry_or_dlq(topic)
