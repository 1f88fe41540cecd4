"""Rounds over topics and groups: how many are asked at once, and how rates are made."""

from twinlog.client import BadArgument
from twinlog.observe.traffic import TOPICS_PER_ROUND, TrafficSurvey
from twinlog.wire.bodies import MessageQueue, TopicOffset


class FakeAdmin:
    """Topics whose end is `ends`; counts the questions."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.asked = names, list[str]()
        self.end = 100

    async def topics(self) -> list[str]:
        return sorted([*self.names, "%RETRY%G", "RMQ_SYS_TRACE_TOPIC"])

    async def topic_stats(self, topic: str) -> dict:
        self.asked.append(topic)
        return {MessageQueue(topic, "b", 0): TopicOffset(min_offset=40, max_offset=self.end)}

    async def broker_consume_stats(self, address: str, *, order: bool, timeout_ms: int) -> dict:
        key = (("topic", "T0"), ("brokerName", "b"), ("queueId", 0))
        row = {"brokerOffset": self.end, "consumerOffset": self.end - 30, "lastTimestamp": 5}
        return {"consumeStatsList": [{"G": [{"offsetTable": {key: row}}]}, {"Idle": []}]}

    async def consumer_connection(self, group: str):
        raise BadArgument("nobody is online")


async def test_a_round_asks_about_a_bounded_number_of_topics_and_all_have_their_turn():
    names = [f"T{number:05}" for number in range(2 * TOPICS_PER_ROUND + 50)]
    survey = TrafficSurvey(admin := FakeAdmin(names))  # type: ignore[arg-type]
    traffic = await survey.round(["b:1"], 1_000)
    assert len(admin.asked) == TOPICS_PER_ROUND and len(traffic.topics) == len(names)
    assert traffic.topics[-1].stored is None, "not asked yet"
    for number in (2, 3):
        traffic = await survey.round(["b:1"], number * 1_000)
    assert set(admin.asked) == set(names) and traffic.topics[-1].stored == 100


async def test_rates_are_differences_of_two_rounds():
    survey = TrafficSurvey(admin := FakeAdmin(["T0"]))  # type: ignore[arg-type]
    first = await survey.round(["b:1"], 1_000)
    assert first.topics[0].per_second is None and first.topics[0].held == 60
    admin.end = 150
    later = await survey.round(["b:1"], 3_000)
    assert later.topics[0].per_second == 25.0
    group, idle = later.groups
    assert (group.per_second, group.behind, group.members, group.topics) == (25.0, 30, 0, 1)
    assert (idle.name, idle.behind, idle.topics) == ("Idle", 0, 0)
    admin.end = 10
    assert (await survey.round(["b:1"], 4_000)).topics[0].per_second is None, "it was created again"
