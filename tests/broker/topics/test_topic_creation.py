"""Topics that a send creates, and those it must not: as Java 5.5.0 answered the same sends with the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send

from twinlog.broker.broker import Broker

REFUSAL = "topic[{}] not exist, apply first please!"


def shape(broker: Broker, topic: str) -> tuple[int, int, int] | None:
    assert broker.context is not None
    config = broker.context.topics.get(topic)
    return config and (config.read_queue_nums, config.write_queue_nums, config.perm)


async def test_without_automatic_creation_a_send_creates_no_topic(tmp_path: Path):
    async with (
        running_broker(broker_conf(tmp_path, autoCreateTopicEnable=False)) as broker,
        connected(broker) as client,
    ):
        assert shape(broker, "TBW102") is None  # name servers offer no route for topics that do not exist
        for topic in ("U", "TBW102"):
            for _ in range(2):  # the second one takes the path of a topic that was looked up before
                answer = await send(client, b=topic)
                assert answer.code == 17 and REFUSAL.format(topic) in (answer.remark or "")
        assert shape(broker, "U") is None and broker.context.store.log_end == 0
        await client.request(17, {**CREATE, "topic": "U"})
        assert (await send(client, b="U")).code == 0


async def test_without_automatic_creation_other_templates_and_retry_topics_go_on(tmp_path: Path):
    async with (
        running_broker(broker_conf(tmp_path, autoCreateTopicEnable=False)) as broker,
        connected(broker) as client,
    ):
        assert (await send(client, b="ByCluster", c="DefaultCluster", d="50")).code == 0
        assert (await send(client, b="ByBroker", c="broker-a")).code == 0
        assert (await send(client, b="%RETRY%G")).code == 0
        found = [shape(broker, topic) for topic in ("ByCluster", "ByBroker", "%RETRY%G")]
        assert found == [(16, 16, 6), (1, 1, 6), (1, 1, 6)]


async def test_automatic_creation_ends_with_an_update_and_with_a_restart(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        assert (await send(client, b="Before")).code == 0
        assert (await client.request(25, body=b"autoCreateTopicEnable=false\n")).code == 0
        assert (await send(client, b="After")).code == 17
        assert (await send(client, b="Before")).code == 0
    async with (
        running_broker(broker_conf(tmp_path, autoCreateTopicEnable=False)) as broker,
        connected(broker) as client,
    ):
        assert shape(broker, "TBW102") == (8, 8, 7)  # from the file, as in Java, and of no use
        assert (await send(client, b="After")).code == 17
        assert (await send(client, b="Before")).code == 0


@pytest.mark.parametrize(("asked", "given"), [("1", 1), ("3", 3), ("4", 3), ("50", 3)])
async def test_a_created_topic_has_the_queues_asked_for_up_to_the_brokers_default(tmp_path: Path, asked, given):
    async with running_broker(broker_conf(tmp_path, defaultTopicQueueNums=3)) as broker, connected(broker) as client:
        assert shape(broker, "TBW102") == (3, 3, 7)
        assert (await send(client, b="U", d=asked)).code == 0
        assert shape(broker, "U") == (given, given, 6)
        assert (await send(client, b="%RETRY%G", d=asked)).code == 0
        assert shape(broker, "%RETRY%G") == (given, given, 6)
        assert (await send(client, b="U", e=str(given))).code == 29
        assert (await send(client, b="ByCluster", c="DefaultCluster", d="50")).code == 0
        assert shape(broker, "ByCluster") == (16, 16, 6)  # the default is that of TBW102 alone


CREATE = {
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}
