"""Where a producer's sends go, and what their constant members mean: decided once, then looked up.

A target is cached under the members as the header spells them. The checks are those of `send_checks`; when one fails
there is no target, and `send` makes the answer. A change of settings or topics drops all targets.
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
from twinlog.wire.message_id import offset_message_id
from twinlog.wire.properties import encode_properties
from twinlog.wire.sys_flag import MULTI_TAGS, TRANSACTION_MASK

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.stats import MessageCounter
    from twinlog.wire.bodies import TopicConfig
    from twinlog.wire.send_headers import Constants

_TARGETS_MAX = 65536  # cached; when there are more, all are dropped


class Target:
    """A queue that may be sent to, with flags that its messages share, and parts of the answers that never change."""

    __slots__ = (
        "answer_middle",
        "answer_start",
        "counter",
        "flag",
        "host",
        "is_batch",
        "queue_id",
        "real_place",
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
        answer_fields: str,
        counter: MessageCounter,
        *,
        host: str,
        is_batch: bool,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.sys_flag, self.flag, self.reconsume_times = flags
        self.real_place = encode_properties({names.REAL_TOPIC: topic, names.REAL_QID: str(queue_id)})  # if it is parked
        self.is_batch = is_batch
        self.host = host  # before each physical offset in msgId
        # The answer's members up to the physical offset, and from there to the queue offset; one character is one byte.
        # Java has them in another order in the answer to a batch.
        if is_batch:
            self.answer_start = f'{answer_fields},"queueId":"{queue_id}","msgId":"{host}'
            self.answer_middle = '","queueOffset":"'
        else:
            self.answer_start = f'{answer_fields},"msgId":"{host}'
            self.answer_middle = f'","queueId":"{queue_id}","queueOffset":"'
        self.counter = counter
        self.shape = NO_SHAPE  # of its last message's properties


class Targets(dict["Constants", Target]):
    """The targets that were decided so far; `decide` adds one."""

    def __init__(self, ctx: BrokerContext) -> None:
        super().__init__()
        self._ctx = ctx

    def decide(self, constants: Constants) -> Target | None:
        """The target of headers with these members; None when `send` must decide."""
        topic, queues, queue, sys_flags, flags, reconsumed, batch = constants
        numbers = [read_int(str(value)) for value in (queues, queue, sys_flags, flags, reconsumed)]
        config = self._ctx.topics.get(topic)
        if None in numbers or config is None or not _is_ordinary(topic, config):
            return None
        _, queue_id, sys_flag, flag, reconsume_times = (number or 0 for number in numbers)
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return None
        is_batch = str(batch).lower() == "true"
        if is_batch and not _takes_batches(topic, config, sys_flag):
            return None
        if config.topic_filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        settings = self._ctx.settings
        host = offset_message_id(settings.broker_ip1, settings.listen_port, 0)[:-16]
        fixed_fields = msgspec.json.encode(region_and_trace(settings))[1:-1].decode("latin-1")
        flags, counter = (sys_flag, flag, reconsume_times), self._ctx.stats.puts(topic)
        target = Target(topic, queue_id, flags, fixed_fields, counter, host=host, is_batch=is_batch)
        if len(self) >= _TARGETS_MAX:
            self.clear()
        self[constants] = target
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
