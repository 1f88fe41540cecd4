"""The options of `format("rocketmq")` reads, named as Spark's Kafka source names its own.

They are read once, in the driver, and travel to the workers as frozen values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from twinlog.base.system_names import dlq_topic, retry_topic
from twinlog.client.consuming.pulling import SQL92, TAG
from twinlog.spark.cluster_options import CLUSTER_OPTIONS, ClusterOptions, cluster_options
from twinlog.spark.errors import BadOption
from twinlog.spark.lake.address import parse_address
from twinlog.spark.offsets import EARLIEST, LATEST, Offsets, parse_assignment, parse_queue_numbers
from twinlog.spark.option_values import OptionValues
from twinlog.wire.bodies import MessageQueue

PULL_COUNT = 256  # messages per request; a broker that returns fewer is asked for as many as it returns
_BOTH = (
    *CLUSTER_OPTIONS,
    "kind",
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
    "subExpressionType",
    "retriesOf",
    "deadLettersOf",
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
_SUBSCRIPTIONS = ("topic", "subscribe", "subscribePattern", "assign", "retriesOf", "deadLettersOf")
_OF_GROUPS = {"retriesOf": retry_topic, "deadLettersOf": dlq_topic}


class PositionKind(Enum):
    """How a position is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading starts or ends: a word, one time, or an offset or time for each queue."""

    kind: PositionKind
    time_ms: int = 0
    numbers: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """One read: which queues, from where to where, and how."""

    cluster: ClusterOptions
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[MessageQueue, ...] = ()
    starting: Position
    ending: Position = Position(PositionKind.LATEST)
    no_match_is_latest: bool = False
    consumer_group: str | None = None
    pull_group: str = "spark-rocketmq-source"
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_rows_max: int | None = None
    expression: str = "*"
    expression_type: str = TAG
    pull_count: int = PULL_COUNT
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
    """The options of a read; BadOption names the first invalid one, and what to write instead."""
    used, unused = (_STREAM, _BATCH) if streaming else (_BATCH, _STREAM)
    values = OptionValues(given, known=(*_BOTH, *used), ignored=unused)
    cluster = cluster_options(values)
    topics, pattern, assigned = _subscription(values)
    group = values.text("consumerGroup")
    starting = _starting(values, streaming, group)
    commits = streaming and values.flag("commitOffsetsToGroup", False)
    if commits and group is None:
        raise BadOption("commitOffsetsToGroup needs consumerGroup: name the group whose offsets are to be published")
    expression, expression_type = _expression(values)
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
        ending=Position(PositionKind.LATEST) if streaming else _ending(values),
        no_match_is_latest=values.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
        == "latest",
        consumer_group=group,
        pull_group=group or _pull_group(values, (topics, pattern, assigned)),
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        partitions_min=values.optional_integer("minPartitions", low=1),
        partition_rows_max=values.optional_integer("maxRecordsPerPartition", low=1),
        expression=expression,
        expression_type=expression_type,
        pull_count=values.integer("pullBatchSize", PULL_COUNT, low=1),
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
        initial_offsets_location=_place(values, "initialOffsetsLocation") if streaming else None,
    )


def _expression(values: OptionValues) -> tuple[str, str]:
    """The filter that brokers apply, and its language."""
    kind = values.choice("subExpressionType", TAG, (TAG, SQL92))
    text = values.text("subExpression")
    if kind == SQL92 and text is None:
        raise BadOption("subExpressionType=SQL92 needs subExpression: a condition, for example amount > 10")
    return text or "*", kind


def _pull_group(values: OptionValues, subscription: object) -> str:
    """The group of pull requests: one for all reads, or with groupIdPrefix one for each query.

    A broker keeps every group that it has seen, so the name must not change with each run: it is made of what the query
    reads, and of the place of its own that a stream has.
    """
    prefix = values.text("groupIdPrefix")
    if prefix is None:
        return "spark-rocketmq-source"
    place = values.text("initialOffsetsLocation")
    return f"{prefix}-{hashlib.sha256(repr((subscription, place)).encode()).hexdigest()[:12]}"


def _place(values: OptionValues, name: str) -> str | None:
    text = values.text(name)
    if text is None:
        return None
    place = parse_address(text, name)
    if not place.is_local and place.scheme != "s3a":
        hint = "give a local path of the driver's machine, or s3a://"
        raise BadOption(f"{name} {text!r}: sources plan in a process without a JVM, which cannot write there; {hint}")
    return str(place)


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
            raise BadOption(f"subscribePattern {text!r} is not a regular expression: {error}") from error
        return (), text, ()
    found = values.names(name)
    return tuple(map(_OF_GROUPS[name], found)) if name in _OF_GROUPS else found, None, ()


def _starting(values: OptionValues, streaming: bool, group: str | None) -> Position:
    by_time = _by_time(values, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = values.text("startingOffsets") or ("latest" if streaming else "earliest")
    if text.lower() == "group":
        if group is None:
            raise BadOption("startingOffsets=group needs consumerGroup: name the group whose offsets to start from")
        return Position(PositionKind.GROUP)
    if text.lower() in ("earliest", "latest"):
        if text.lower() == "latest" and not streaming:
            raise BadOption("startingOffsets=latest reads nothing in a batch: give earliest, a time or offsets")
        return Position(PositionKind(text.lower()))
    numbers = parse_queue_numbers("startingOffsets", text, low=EARLIEST)
    if not streaming and LATEST in numbers.values():
        raise BadOption("startingOffsets holds -1 (latest), which reads nothing in a batch: give -2 or an offset")
    return Position(PositionKind.OFFSETS, numbers=numbers)


def _ending(values: OptionValues) -> Position:
    by_time = _by_time(values, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = values.text("endingOffsets") or "latest"
    if text.lower() == "latest":
        return Position(PositionKind.LATEST)
    if text.lower() in ("earliest", "group"):
        raise BadOption(f"endingOffsets={text} cannot be an end: give latest, a time or offsets")
    numbers = parse_queue_numbers("endingOffsets", text, low=EARLIEST)
    if EARLIEST in numbers.values():
        raise BadOption("endingOffsets holds -2 (earliest), which reads nothing: give -1 or an offset")
    return Position(PositionKind.OFFSETS, numbers=numbers)


def _by_time(values: OptionValues, one: str, each: str) -> Position | None:
    time_ms = values.moment_ms(one)
    if time_ms is not None:
        return Position(PositionKind.TIME, time_ms=time_ms)
    text = values.text(each)
    if text is None:
        return None
    return Position(PositionKind.TIMES, numbers=parse_queue_numbers(each, text, low=0))
