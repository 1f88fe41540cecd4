"""Topics of a cluster as their brokers keep them: queues, bounds, who may read and write."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.base.system_names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from twinlog.client import Admin
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.wire.bodies import TopicConfig, TopicRouteData, TopicStats
from twinlog.wire.codes import MASTER_ID

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


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic in the whole cluster: its route, and what each master holds of it."""

    name: str
    route: TopicRouteData
    brokers: dict[str, TopicOnBroker]  # by broker name; those that answer
    silent: dict[str, str]  # broker name -> why it is missing

    @property
    def held(self) -> int:
        return sum(one.held for one in self.brokers.values())

    @property
    def stored(self) -> int:
        return sum(one.stored for one in self.brokers.values())

    @property
    def per_second(self) -> float:
        return sum(one.puts_per_second for one in self.brokers.values())

    @property
    def last_ms(self) -> int:
        return max((one.last_ms for one in self.brokers.values()), default=0)


async def topic_view(admin: Admin, topic: str) -> TopicView:
    """NoRoute when the name servers do not have it."""
    route = await admin.route_data(topic)
    found: dict[str, TopicOnBroker] = {}
    silent: dict[str, str] = {}
    for data in route.broker_datas:
        address = data.broker_addrs.get(MASTER_ID) or next(iter(data.broker_addrs.values()), None)
        if address is None:
            silent[data.broker_name] = "it has no address"
            continue
        try:
            config = await admin.topic_config(address, topic)
            found[data.broker_name] = await topic_on_broker(admin, address, config)
        except REQUEST_FAILURES as error:
            silent[data.broker_name] = str(error)
    return TopicView(topic, route, found, silent)


def permission_text(perm: int) -> str:
    """`read, write` for 6."""
    words = [word for bit, word in ((4, "read"), (2, "write"), (1, "inherit")) if perm & bit]
    return ", ".join(words) or "none"
