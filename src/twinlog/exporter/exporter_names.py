"""Names of rocketmq-exporter for topics, groups and clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinlog.base.system_names import DLQ_PREFIX
from twinlog.exporter.facts import BrokerFacts, ClientStatus, MinuteRate
from twinlog.exporter.families import Metric, Row
from twinlog.exporter.runtime_names import number
from twinlog.observe.groups.group_progress import Members
from twinlog.observe.topics import is_dead_letter, is_retry

BROKER = ("cluster", "brokerIP", "broker")
TOPIC = ("cluster", "broker", "topic")
GROUP = ("cluster", "broker", "topic", "group")
DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
CLIENT = ("clientAddr", "clientId", "group", "topic")

BROKER_TPS = Metric("rocketmq_broker_tps", "Messages a second that producers sent", BROKER)
BROKER_QPS = Metric("rocketmq_broker_qps", "Messages a second that consumers took", BROKER)
COMMITLOG_DIFF = Metric("rocketmq_broker_commitlog_diff", "Log bytes that a replica is behind its master", BROKER)
PRODUCER_COUNT = Metric("rocketmq_producer_count", "Producers connected", ("cluster", "broker", "group"))
PRODUCER_TPS = Metric("rocketmq_producer_tps", "Messages a second sent to a topic", TOPIC)
PRODUCER_SIZE = Metric("rocketmq_producer_message_size", "Bytes a second sent to a topic", TOPIC)
PRODUCER_OFFSET = Metric("rocketmq_producer_offset", "Messages ever stored in a topic", TOPIC)
RETRY_OFFSET = Metric("rocketmq_topic_retry_offset", "Messages ever stored for a retry", TOPIC)
DLQ_OFFSET = Metric("rocketmq_topic_dlq_offset", "Dead letters ever stored", ("cluster", "broker", "group"))
CONSUMER_TPS = Metric("rocketmq_consumer_tps", "Messages a second that a group took", GROUP)
CONSUME_TPS = Metric("rocketmq_group_consume_tps", "Messages a second that a group took", GROUP)
CONSUMER_SIZE = Metric("rocketmq_consumer_message_size", "Bytes a second that a group took", GROUP)
CONSUMER_OFFSET = Metric("rocketmq_consumer_offset", "Sum of a group's offsets", GROUP)
CONSUME_OFFSET = Metric("rocketmq_group_consume_total_offset", "Sum of a group's offsets", GROUP)
LATENCY = Metric(
    "rocketmq_group_get_latency_by_storetime", "Age of the oldest message that a group has not consumed, ms", GROUP
)
SEND_BACKS = Metric("rocketmq_send_back_nums", "Messages that a group sent back in the last minute", GROUP)
GROUP_DIFF = Metric("rocketmq_group_diff", "Messages that a group has not consumed", DIFF)
GROUP_RETRY_DIFF = Metric("rocketmq_group_retrydiff", "Messages for a retry that a group has not consumed", DIFF)
GROUP_DLQ_DIFF = Metric("rocketmq_group_dlqdiff", "Dead letters that a group has not consumed", DIFF)
GROUP_COUNT = Metric("rocketmq_group_count", "Consumers connected", ("caddr", "localaddr", "group"))
CLIENT_NUMBERS = {
    "consumeFailedMsgs": Metric("rocketmq_client_consume_fail_msg_count", "Failures within an hour", CLIENT),
    "consumeFailedTPS": Metric("rocketmq_client_consume_fail_msg_tps", "Failures a second", CLIENT),
    "consumeOKTPS": Metric("rocketmq_client_consume_ok_msg_tps", "Messages consumed a second", CLIENT),
    "consumeRT": Metric("rocketmq_client_consume_rt", "Mean time of a listener call, ms", CLIENT),
    "pullRT": Metric("rocketmq_client_consumer_pull_rt", "Mean time of a pull, ms", CLIENT),
    "pullTPS": Metric("rocketmq_client_consumer_pull_tps", "Messages pulled a second", CLIENT),
}
_CLUSTERING, _BROADCASTING = "1", "0"  # as rocketmq-exporter numbers the message models


def broker_rows(facts: BrokerFacts) -> Iterator[Row]:
    """One master and what it holds."""
    place = facts.place
    if facts.put_tps is not None:
        yield BROKER_TPS, (place.cluster, place.address, place.name), facts.put_tps
    if facts.get_tps is not None:
        yield BROKER_QPS, (place.cluster, place.address, place.name), facts.get_tps
    for group, clients in facts.producers.items():
        yield PRODUCER_COUNT, (place.cluster, place.name, group), len(clients)
    yield from _topic_rows(facts)
    yield from _group_rows(facts)


def _topic_rows(facts: BrokerFacts) -> Iterator[Row]:
    where = (facts.place.cluster, facts.place.name)
    for topic in facts.topics:
        if is_retry(topic.name):
            yield RETRY_OFFSET, (*where, topic.name), topic.stored
        elif is_dead_letter(topic.name):
            yield DLQ_OFFSET, (*where, topic.name.removeprefix(DLQ_PREFIX)), topic.stored
        else:
            rate = facts.topic_rates.get(topic.name, MinuteRate())
            yield PRODUCER_OFFSET, (*where, topic.name), topic.stored
            yield PRODUCER_TPS, (*where, topic.name), rate.messages
            yield PRODUCER_SIZE, (*where, topic.name), rate.bytes


def _group_rows(facts: BrokerFacts) -> Iterator[Row]:
    for one in facts.progress:
        labels, key = (facts.place.cluster, facts.place.name, one.topic, one.group), (one.topic, one.group)
        yield CONSUMER_OFFSET, labels, one.consumed
        yield CONSUME_OFFSET, labels, one.consumed
        yield CONSUMER_TPS, labels, one.per_second
        yield CONSUME_TPS, labels, one.per_second
        yield CONSUMER_SIZE, labels, facts.get_bytes.get(key, 0.0)
        yield SEND_BACKS, labels, facts.send_backs.get(key, 0.0)
        if key in facts.waits_ms:
            yield LATENCY, labels, facts.waits_ms[key]


def cluster_rows(masters: Iterable[BrokerFacts]) -> Iterator[Row]:
    """Rows that rocketmq-exporter has once for all brokers: members of groups, and their backlog."""
    masters = list(masters)
    members: dict[str, Members] = {}
    for facts in masters:
        for group, found in facts.members.items():
            known = members.get(group)
            if known is None or len(found.clients) > len(known.clients):  # a client is connected to every broker
                members[group] = found
    for group, found in sorted(members.items()):
        addresses = ",".join(client.address for client in found.clients)
        ids = ",".join(client.client_id for client in found.clients)
        yield GROUP_COUNT, (addresses, ids, group), len(found.clients)
    for facts in masters:
        for one in facts.progress:
            found = members.get(one.group, Members())
            metric = GROUP_DIFF
            if is_retry(one.topic):
                metric = GROUP_RETRY_DIFF
            elif is_dead_letter(one.topic):
                metric = GROUP_DLQ_DIFF
            model = _BROADCASTING if found.is_broadcasting else _CLUSTERING
            yield metric, (one.group, one.topic, str(len(found.clients)), model), one.behind
    yield from _client_rows(masters)


def _client_rows(masters: Iterable[BrokerFacts]) -> Iterator[Row]:
    """A client answers through any of its brokers with the same numbers: each is shown once."""
    seen: dict[tuple[str, str, str], ClientStatus] = {}
    for facts in masters:
        for client in facts.clients:
            seen.setdefault((client.client_id, client.group, client.topic), client)
    for client in seen.values():
        labels = (client.address, client.client_id, client.group, client.topic)
        for key, metric in CLIENT_NUMBERS.items():
            value = number(str(client.numbers.get(key)))
            if value is not None:
                yield metric, labels, value
