"""Names of the endpoint that RocketMQ 5 brokers have themselves, for what can be seen from outside of a broker.

Names and labels are those of a Java broker 5.5.0 with `metricsExporterType=PROM`. What only the broker counts
(bytes by topic, histograms) is on its own endpoint alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from twinlog.base.system_names import DLQ_PREFIX, is_system_topic
from twinlog.exporter.facts import BrokerFacts
from twinlog.exporter.families import Metric, Row
from twinlog.exporter.runtime_names import disk_bytes, number
from twinlog.observe.topics import is_dead_letter, is_retry
from twinlog.telemetry.rocketmq_names import (
    CONSUMERS,
    DEAD_LETTERS,
    IN,
    LAG,
    LOCAL_DISK,
    NODE,
    OUT,
    PRODUCERS,
    REMOTING,
    STORAGE,
    consume_mode,
    is_system_group,
    true_false,
)
from twinlog.wire.codes import version_name

MESSAGES_IN = Metric("rocketmq_messages_in", "Messages stored in a topic", IN, "counter")
MESSAGES_OUT = Metric(
    "rocketmq_messages_out",
    "Messages that a group consumed since the exporter began",
    OUT,
    "counter",
)
TO_DLQ = Metric("rocketmq_send_to_dlq_messages", "Dead letters of a group", DEAD_LETTERS, "counter")
LAG_MESSAGES = Metric("rocketmq_consumer_lag_messages", "Messages that a group has not consumed", LAG)
LAG_LATENCY = Metric("rocketmq_consumer_lag_latency_milliseconds", "Age of the oldest one", LAG)
IN_FLIGHT = Metric("rocketmq_consumer_inflight_messages", "Messages given to a group and not yet consumed", LAG)
READY = Metric("rocketmq_consumer_ready_messages", "Messages not yet given to the group", LAG)
PRODUCERS_CONNECTED = Metric("rocketmq_producer_connections", "Producers connected", PRODUCERS)
CONSUMERS_CONNECTED = Metric("rocketmq_consumer_connections", "Consumers connected", CONSUMERS)
TOPICS = Metric("rocketmq_topic_number", "Topics", NODE)
GROUPS = Metric("rocketmq_consumer_group_number", "Consumer groups", NODE)
PERMISSION = Metric("rocketmq_broker_permission", "brokerPermission", NODE)
WATERMARK = Metric("rocketmq_processor_watermark", "Requests that wait for a thread", (*NODE, "processor"))
STORAGE_SIZE = Metric("rocketmq_storage_size_bytes", "Bytes used on the commit log's disk", STORAGE)
FLUSH_BEHIND = Metric("rocketmq_storage_flush_behind_bytes", "Bytes not on disk yet", STORAGE)
DISPATCH_BEHIND = Metric("rocketmq_storage_dispatch_behind_bytes", "Bytes not in queues yet", STORAGE)
RESERVE_TIME = Metric("rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest message", STORAGE)
TIMER_LAG = Metric("rocketmq_timer_enqueue_lag", "Timer messages not read yet", STORAGE)
TIMER_LATENCY = Metric("rocketmq_timer_enqueue_latency_milliseconds", "Timer messages are read so late", STORAGE)
_PROCESSORS = {
    "send": "sendThreadPoolQueueSize",
    "pull": "pullThreadPoolQueueSize",
    "lite_pull": "litePullThreadPoolQueueSize",
    "query_message": "queryThreadPoolQueueSize",
    "ack": "ackThreadPoolQueueSize",
    "transaction": "EndTransactionQueueSize",
}


def native_rows(facts: BrokerFacts) -> Iterator[Row]:
    """One master."""
    node = (facts.place.cluster, "broker", facts.place.name)
    yield TOPICS, node, facts.topic_count
    yield GROUPS, node, facts.group_count
    if facts.permission is not None:
        yield PERMISSION, node, facts.permission
    yield from _state_rows(facts, node)
    yield from _topic_rows(facts, node)
    yield from _group_rows(facts, node)
    yield from _connection_rows(facts, node)


def _state_rows(facts: BrokerFacts, node: tuple[str, ...]) -> Iterator[Row]:
    table, storage = facts.runtime, (*node, *LOCAL_DISK)
    total, free = disk_bytes(table)
    earliest_ms = number(table.get("earliestMessageTimeStamp"))
    read_behind_s = number(table.get("timerReadBehind"))
    values = {
        STORAGE_SIZE: None if total is None or free is None else total - free,
        FLUSH_BEHIND: number(table.get("remainHowManyDataToFlush")),
        DISPATCH_BEHIND: number(table.get("dispatchBehindBytes")),
        RESERVE_TIME: facts.taken_ms - earliest_ms if earliest_ms is not None and earliest_ms > 0 else None,
        TIMER_LAG: number(table.get("timerOffsetBehind")),
        TIMER_LATENCY: None if read_behind_s is None else max(read_behind_s, 0) * 1000,
    }
    for metric, value in values.items():
        if value is not None:
            yield metric, storage, max(value, 0)
    for processor, key in _PROCESSORS.items():
        if (size := number(table.get(key))) is not None:
            yield WATERMARK, (*node, processor), size


def _topic_rows(facts: BrokerFacts, node: tuple[str, ...]) -> Iterator[Row]:
    for topic in facts.topics:
        if is_dead_letter(topic.name):
            group = topic.name.removeprefix(DLQ_PREFIX)
            yield TO_DLQ, (*node, group, true_false(is_system_group(group))), topic.stored
        else:
            labels = (*node, topic.name, topic.message_type, _is_system(facts, topic.name))
            yield MESSAGES_IN, labels, topic.stored


def _group_rows(facts: BrokerFacts, node: tuple[str, ...]) -> Iterator[Row]:
    for one in facts.progress:
        if is_dead_letter(one.topic):
            continue
        key, system = (one.topic, one.group), _is_system(facts, one.topic, one.group)
        labels = (*node, one.topic, one.group, true_false(is_retry(one.topic)), system)
        yield LAG_MESSAGES, labels, one.behind
        yield IN_FLIGHT, labels, one.in_flight
        yield READY, labels, one.ready
        if key in facts.waits_ms:
            yield LAG_LATENCY, labels, facts.waits_ms[key]
        yield MESSAGES_OUT, (*node, one.topic, one.group, system), facts.consumed_total.get(key, 0)


def _connection_rows(facts: BrokerFacts, node: tuple[str, ...]) -> Iterator[Row]:
    producers = Counter(client for clients in facts.producers.values() for client in clients)
    for (language, version), count in producers.items():
        yield PRODUCERS_CONNECTED, (*node, language.lower(), version_name(version).lower(), REMOTING), count
    for group, members in facts.members.items():
        consumers = Counter(
            (client.language.lower(), version_name(client.version).lower()) for client in members.clients
        )
        mode = consume_mode(members.consume_type)
        for (language, version), count in consumers.items():
            system = true_false(is_system_group(group))
            yield CONSUMERS_CONNECTED, (*node, group, language, version, mode, REMOTING, system), count


def _is_system(facts: BrokerFacts, topic: str, group: str = "") -> str:
    place = facts.place
    return true_false(is_system_topic(topic, place.cluster, place.name) or is_system_group(group))
