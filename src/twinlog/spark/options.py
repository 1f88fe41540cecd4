"""The options of `format("rocketmq")` reads, named as Spark's Kafka source names its own.

They are read once, in the driver, and travel to the workers as frozen values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from twinlog.client.errors import ClientError
from twinlog.client.routing.name_servers import parse_name_servers
from twinlog.client.signing import Credentials
from twinlog.spark.errors import BadOption
from twinlog.spark.offsets import EARLIEST, LATEST, Offsets, parse_assignment, parse_queue_numbers
from twinlog.spark.option_values import OptionValues
from twinlog.spark.paths import local_path
from twinlog.wire.bodies import MessageQueue

CLUSTER_OPTIONS = (
    "nameServer",
    "accessKey",
    "secretKey",
    "rocketmq.securityToken",
    "brokerWait",
    "rocketmq.connectTimeoutMs",
    "rocketmq.requestTimeoutMs",
    "rocketmq.useTLS",
    "rocketmq.tls.caFile",
    "rocketmq.tls.certFile",
    "rocketmq.tls.keyFile",
    "rocketmq.tls.verify",
)
_BOTH = (
    *CLUSTER_OPTIONS,
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "consumerGroup",
    "groupIdPrefix",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "subExpression",
    "pullBatchSize",
    "pullTimeoutMs",
    "pullDepth",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "readFrom",
    "includeProperties",
    "decompress",
    "checkCrc",
)
_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitOffsetsToGroup",
    "initialOffsetsLocation",
)
_SUBSCRIPTIONS = ("topic", "subscribe", "subscribePattern", "assign")


class Place(Enum):
    """A kind of position in queues."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading starts or ends: a word, a moment, or a number for each queue."""

    place: Place
    time_ms: int = 0
    numbers: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach a cluster; secrets do not show in its repr."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = field(default=None, repr=False)
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True
    tries: int = 4  # of a driver's question, the first included
    retry_interval_ms: int = 10
    broker_wait_ms: int = 300_000  # for a broker that is away


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A whole read: what, from where, to where, how fast."""

    cluster: ClusterOptions
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[MessageQueue, ...] = ()
    starting: Position
    ending: Position = Position(Place.LATEST)
    no_match_is_latest: bool = False
    consumer_group: str | None = None
    pull_group: str = "spark-rocketmq-source"
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_rows_max: int | None = None
    expression: str = "*"
    pull_count: int = 32
    pull_timeout_ms: int = 3_000
    pull_depth: int = 8
    read_from: str = "master"
    include_properties: bool = True
    inflates: bool = True
    checks_crc: bool = False  # TCP has its own checks, and Java clients rely on them too
    trigger_rows_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay_ms_max: int = 900_000
    commits_to_group: bool = False
    initial_offsets_location: str | None = None

    @property
    def is_filtered(self) -> bool:
        return self.expression != "*"


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a read; BadOption names the first that cannot be used, and what to write instead."""
    used, unused = (_STREAM, _BATCH) if streaming else (_BATCH, _STREAM)
    values = OptionValues(given, known=(*_BOTH, *used), ignored=unused)
    cluster = cluster_options(values)
    topics, pattern, assigned = _subscription(values)
    group = values.text("consumerGroup")
    starting = _starting(values, streaming, group)
    commits = streaming and values.flag("commitOffsetsToGroup", False)
    if commits and group is None:
        raise BadOption("commitOffsetsToGroup needs consumerGroup: name the group whose offsets are to be published")
    rows_max = values.optional_integer("maxOffsetsPerTrigger", low=1) if streaming else None
    rows_min = values.optional_integer("minOffsetsPerTrigger", low=1) if streaming else None
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise BadOption(
            f"minOffsetsPerTrigger {rows_min} is above maxOffsetsPerTrigger {rows_max}: no batch could be made"
        )
    return ReadOptions(
        cluster=cluster,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=Position(Place.LATEST) if streaming else _ending(values),
        no_match_is_latest=values.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
        == "latest",
        consumer_group=group,
        pull_group=group or values.text("groupIdPrefix") or "spark-rocketmq-source",
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        partitions_min=values.optional_integer("minPartitions", low=1),
        partition_rows_max=values.optional_integer("maxRecordsPerPartition", low=1),
        expression=values.text("subExpression") or "*",
        pull_count=values.integer("pullBatchSize", 32, low=1),
        pull_timeout_ms=values.integer("pullTimeoutMs", 3_000, low=1),
        pull_depth=values.integer("pullDepth", 8, low=1),
        read_from=values.choice("readFrom", "master", ("master", "slave", "any")),
        include_properties=values.flag("includeProperties", True),
        inflates=values.flag("decompress", True),
        checks_crc=values.flag("checkCrc", False),
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_ms_max=values.duration_ms("maxTriggerDelay", 900_000),
        commits_to_group=commits,
        initial_offsets_location=_local(values, "initialOffsetsLocation") if streaming else None,
    )


def _local(values: OptionValues, name: str) -> str | None:
    text = values.text(name)
    return None if text is None else str(local_path(text, name))


def cluster_options(values: OptionValues) -> ClusterOptions:
    """The part that reads and writes share."""
    text = values.required("nameServer", "127.0.0.1:9876")
    try:
        name_servers = tuple(parse_name_servers(text))
    except ClientError as error:
        raise BadOption(f"option nameServer: {error}") from error
    access, secret = values.text("accessKey"), values.text("secretKey")
    if (access is None) != (secret is None):
        raise BadOption("accessKey and secretKey belong together: give both or none")
    credentials = None
    if access is not None and secret is not None:
        credentials = Credentials(access, secret, values.text("rocketmq.securityToken"))
    return ClusterOptions(
        name_servers=name_servers,
        credentials=credentials,
        connect_timeout_ms=values.integer("rocketmq.connectTimeoutMs", 3_000, low=1),
        request_timeout_ms=values.integer("rocketmq.requestTimeoutMs", 3_000, low=1),
        tls=values.flag("rocketmq.useTLS", False),
        tls_ca_file=values.text("rocketmq.tls.caFile"),
        tls_cert_file=values.text("rocketmq.tls.certFile"),
        tls_key_file=values.text("rocketmq.tls.keyFile"),
        tls_verify=values.flag("rocketmq.tls.verify", True),
        tries=1 + values.integer("fetchOffset.numRetries", 3),
        retry_interval_ms=values.integer("fetchOffset.retryIntervalMs", 10),
        broker_wait_ms=values.duration_ms("brokerWait", 300_000),
    )


def _subscription(values: OptionValues) -> tuple[tuple[str, ...], str | None, tuple[MessageQueue, ...]]:
    given = [name for name in _SUBSCRIPTIONS if values.text(name) is not None]
    if len(given) != 1:
        found = f"there are {', '.join(given)}" if given else "there is none"
        raise BadOption(f"give exactly one of {', '.join(_SUBSCRIPTIONS)}: {found}")
    (name,) = given
    text = values.text(name) or ""
    if name == "assign":
        return (), None, parse_assignment(name, text)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(f"subscribePattern {text!r} is no regular expression: {error}") from error
        return (), text, ()
    return values.names(name), None, ()


def _starting(values: OptionValues, streaming: bool, group: str | None) -> Position:
    by_time = _by_time(values, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = values.text("startingOffsets") or ("latest" if streaming else "earliest")
    if text.lower() == "group":
        if group is None:
            raise BadOption("startingOffsets=group needs consumerGroup: name the group whose offsets to start from")
        return Position(Place.GROUP)
    if text.lower() in ("earliest", "latest"):
        if text.lower() == "latest" and not streaming:
            raise BadOption("startingOffsets=latest reads nothing in a batch: give earliest, a time or offsets")
        return Position(Place(text.lower()))
    numbers = parse_queue_numbers("startingOffsets", text, low=EARLIEST)
    if not streaming and LATEST in numbers.values():
        raise BadOption("startingOffsets holds -1 (latest), which reads nothing in a batch: give -2 or an offset")
    return Position(Place.OFFSETS, numbers=numbers)


def _ending(values: OptionValues) -> Position:
    by_time = _by_time(values, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = values.text("endingOffsets") or "latest"
    if text.lower() == "latest":
        return Position(Place.LATEST)
    if text.lower() in ("earliest", "group"):
        raise BadOption(f"endingOffsets={text} is no end: give latest, a time or offsets")
    numbers = parse_queue_numbers("endingOffsets", text, low=EARLIEST)
    if EARLIEST in numbers.values():
        raise BadOption("endingOffsets holds -2 (earliest), which reads nothing: give -1 or an offset")
    return Position(Place.OFFSETS, numbers=numbers)


def _by_time(values: OptionValues, one: str, each: str) -> Position | None:
    time_ms = values.optional_integer(one)
    if time_ms is not None:
        return Position(Place.TIME, time_ms=time_ms)
    text = values.text(each)
    if text is None:
        return None
    return Position(Place.TIMES, numbers=parse_queue_numbers(each, text, low=0))
