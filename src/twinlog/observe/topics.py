"""Topics of a cluster as their brokers keep them: queues, bounds, who may read and write."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.base.system_names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from twinlog.client import Admin
from twinlog.wire.bodies import TopicConfig, TopicStats

MESSAGE_TYPE = "message.type"  # the attribute of a topic that says what it may hold


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """One queue on one broker."""

    queue_id: int
    low: int  # oldest offset that is still there
    high: int  # next offset
    last_ms: int  # when its newest message was stored; 0 without messages

    @property
    def held(self) -> int:
        return max(self.high - self.low, 0)


@dataclass(frozen=True, slots=True)
class TopicOnBroker:
    """A topic on one broker."""

    name: str
    config: TopicConfig
    queues: tuple[QueueBounds, ...]
    puts_per_second: float  # over the last minute, as the broker counts it

    @property
    def stored(self) -> int:
        """Messages ever stored in it."""
        return sum(queue.high for queue in self.queues)

    @property
    def held(self) -> int:
        """Messages that are still there."""
        return sum(queue.held for queue in self.queues)

    @property
    def last_ms(self) -> int:
        return max((queue.last_ms for queue in self.queues), default=0)

    @property
    def message_type(self) -> str:
        """What its attribute says, in lower case; `unspecified` without one."""
        return message_type(self.config)


def message_type(config: TopicConfig) -> str:
    return config.attributes.get(MESSAGE_TYPE, "unspecified").lower()


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def kind_of(topic: str, cluster: str = "", broker: str = "") -> str:
    """`normal`, `retry`, `dead letters` or `system`; each cluster and each broker has a topic of its own name."""
    if is_retry(topic):
        return "retry"
    if is_dead_letter(topic):
        return "dead letters"
    return "system" if is_system_topic(topic, cluster, broker) else "normal"


def queue_bounds(stats: TopicStats) -> tuple[QueueBounds, ...]:
    rows = sorted((queue.queue_id, row) for queue, row in stats.offset_table.items())
    return tuple(
        QueueBounds(number, max(row.min_offset, 0), max(row.max_offset, 0), row.last_update_timestamp)
        for number, row in rows
    )


async def topic_on_broker(admin: Admin, address: str, config: TopicConfig) -> TopicOnBroker:
    """One request."""
    stats = await admin.broker_topic_stats(address, config.topic_name)
    return TopicOnBroker(config.topic_name, config, queue_bounds(stats), stats.topic_put_tps)
