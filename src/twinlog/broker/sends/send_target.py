"""Where a producer's sends go, and what their constant members mean: decided once, then looked up.

A target is cached under the members as the header spells them. The checks are those of `send_checks`; when one fails
there is no target, and `send` makes the answer. A change of settings, or of a topic that has targets, drops them all;
a new topic has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from twinlog.base.system_names import RETRY_PREFIX, SEND_FORBIDDEN_TOPICS, TIMER_TOPIC
from twinlog.broker.sends.send_checks import TOPIC_LENGTH_IN_BATCH_MAX, region_and_trace
from twinlog.broker.sends.send_properties import NO_SHAPE
from twinlog.broker.topics.name_rules import topic_name_problem
from twinlog.wire import properties as names
from twinlog.wire.fields import read_int
from twinlog.wire.values.message_id import offset_message_id
from twinlog.wire.values.sys_flag import MULTI_TAGS, TRANSACTION_MASK

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.stats import MessageCounter
    from twinlog.settings.broker import BrokerSettings
    from twinlog.wire.bodies import TopicConfig
    from twinlog.wire.sends.send_headers import Constants

_TARGETS_MAX = 131072  # cached; when there are more, all are dropped
_VALUE_LENGTH_MAX = 16  # of a number or a truth value in a key of the cache; `send` reads longer spellings
_NOTHING_PARKED: dict[str, tuple[int, bytes]] = {}
_REAL_TOPIC = f"{names.REAL_TOPIC}{names.NAME_END}"
_REAL_QUEUE = f"{names.PAIR_END}{names.REAL_QID}{names.NAME_END}"


class Target:
    """A queue that may be sent to, with flags that its messages share, and parts of the answers that never change."""

    __slots__ = (
        "_real_place",
        "answer_middle",
        "answer_start",
        "counter",
        "flag",
        "host",
        "is_batch",
        "parked",
        "queue_id",
        "reconsume_times",
        "shape",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        flags: tuple[int, int, int],
        counter: MessageCounter,
        parts: AnswerParts,
        *,
        is_batch: bool,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.sys_flag, self.flag, self.reconsume_times = flags
        self.is_batch = is_batch
        # The answer's members up to the physical offset, and from there to the queue offset; one character is one byte.
        self.answer_start, self.answer_middle = parts.around_offset(queue_id, is_batch)
        self.host = parts.host  # before each physical offset in msgId
        self.counter = counter
        self.shape = NO_SHAPE  # of its last message's properties
        self.parked = _NOTHING_PARKED  # by DELAY: the level, and the properties behind those of a message that waits
        self._real_place: bytes | None = None

    @property
    def real_place(self) -> bytes:
        """The properties that say where a parked message belongs; most targets never need them."""
        if self._real_place is None:
            self._real_place = f"{_REAL_TOPIC}{self.topic}{_REAL_QUEUE}{self.queue_id}{names.PAIR_END}".encode()
        return self._real_place

    def park(self, level: int, own: bytes) -> None:
        """Messages wait in this level, and their properties end in `own`; most targets have none."""
        if self.parked is _NOTHING_PARKED:
            self.parked = {}
        self.parked[str(level)] = level, own


class AnswerParts:
    """Parts of answers that all targets share, so that a target is small."""

    def __init__(self, settings: BrokerSettings) -> None:
        fixed_fields = msgspec.json.encode(region_and_trace(settings))[1:-1].decode("latin-1")
        self.host = offset_message_id(*settings.record_host, 0)[:-16]
        self._fixed_fields = fixed_fields
        self._parts: dict[tuple[int, bool], tuple[str, str]] = {}

    def around_offset(self, queue_id: int, is_batch: bool) -> tuple[str, str]:
        """What stands before and behind the physical offset; Java has another order in the answer to a batch."""
        parts = self._parts.get((queue_id, is_batch))
        if parts is None:
            if is_batch:
                parts = f'{self._fixed_fields},"queueId":"{queue_id}","msgId":"{self.host}', '","queueOffset":"'
            else:
                middle = f'","queueId":"{queue_id}","queueOffset":"'
                parts = f'{self._fixed_fields},"msgId":"{self.host}', middle
            self._parts[queue_id, is_batch] = parts
        return parts


class Targets(dict["Constants", Target]):
    """The targets that were decided so far; `decide` adds one."""

    def __init__(self, ctx: BrokerContext) -> None:
        super().__init__()
        self._ctx = ctx
        self._parts: AnswerParts | None = None
        self._values: dict[str | int, str | int] = {}  # of members that most targets share, once each
        self.topics: set[str] = set()  # of all targets since `clear`: those dropped since then may be cached elsewhere

    def clear(self) -> None:
        self._drop_all()
        self.topics.clear()

    def _drop_all(self) -> None:
        super().clear()
        self._values.clear()
        self._parts = None

    def decide(self, constants: Constants) -> Target | None:
        """The target of headers with these members; None when `send` must decide."""
        topic, queues, queue, sys_flags, flags, reconsumed, batch = constants
        numbers = [read_int(str(value)) for value in (queues, queue, sys_flags, flags, reconsumed)]
        config = self._ctx.topics.get(topic)
        if None in numbers or any(len(str(value)) > _VALUE_LENGTH_MAX for value in constants[1:]):
            return None
        if config is None or not _is_ordinary(topic, config):
            return None
        _, queue_id, sys_flag, flag, reconsume_times = (number or 0 for number in numbers)
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return None
        is_batch = str(batch).lower() == "true"
        if is_batch and not _takes_batches(topic, config, sys_flag):
            return None
        if config.topic_filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        if len(self) >= _TARGETS_MAX:
            self._drop_all()
        if self._parts is None:
            self._parts = AnswerParts(self._ctx.settings)
        counter = self._ctx.stats.puts(topic)
        target = Target(topic, queue_id, (sys_flag, flag, reconsume_times), counter, self._parts, is_batch=is_batch)
        share = self._values.setdefault
        key = topic, *(share(value, value) for value in constants[1:6]), batch
        self[key] = target  # pyright: ignore[reportArgumentType]
        self.topics.add(topic)
        return target


def _is_ordinary(topic: str, config: TopicConfig) -> bool:
    """Whether a send to this topic is checked by nothing but its queue id."""
    if topic_name_problem(topic) is not None or topic in SEND_FORBIDDEN_TOPICS:
        return False
    return not (
        topic.startswith(RETRY_PREFIX)
        or topic == TIMER_TOPIC
        or config.attributes.get("cleanup.policy") == "COMPACTION"
    )


def _takes_batches(topic: str, config: TopicConfig, sys_flag: int) -> bool:
    """Whether the messages of a batch become records of their own; the rules for others are in `send`."""
    if len(topic) > TOPIC_LENGTH_IN_BATCH_MAX or sys_flag & TRANSACTION_MASK:
        return False
    return config.attributes.get("queue.type") != "BatchCQ"
