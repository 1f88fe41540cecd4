"""An online consumer, and answers to what mqadmin asks, for tests of handlers."""

from __future__ import annotations

from tests.broker.offline import Wire

from twinlog.broker.clients.client_table import Client
from twinlog.broker.context import BrokerContext
from twinlog.wire.bodies import ConsumerData, SubscriptionData
from twinlog.wire.command import Command
from twinlog.wire.java_json.fastjson import loads

T0 = (("brokerName", "broker-a"), ("queueId", 0), ("topic", "T"))


class Consumer(Wire):
    """A consumer's connection that answers the broker."""

    def __init__(self, answer: Command | Exception | None = None) -> None:
        super().__init__("10.0.0.7")
        self.answer = answer
        self.asked: list[tuple[int, dict[str, str], bytes | None]] = []

    async def request(self, code, fields=None, body=None, timeout_ms=3000):
        self.asked.append((code, fields, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def online(
    ctx: BrokerContext, wire: Wire, group: str = "G", version: int = 479, topics: tuple[str, ...] = ("T",)
) -> None:
    subscriptions = [SubscriptionData(topic=topic, sub_version=100) for topic in topics]
    data = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    ctx.clients.register_consumer(Client(wire, "c@1", "JAVA", version), data, ctx.clock_ms())


def body_of(answer: Command) -> dict:
    assert answer.code == 0, answer.remark
    return loads(answer.body)


def shape(value):
    """The names in a JSON value, without what differs from run to run."""
    if isinstance(value, dict):
        objects = [key for key in value if not isinstance(key, str) or key.startswith("{")]
        if objects:
            return {"object": shape(value[objects[0]])}
        return {key: shape(member) for key, member in sorted(value.items())}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__
