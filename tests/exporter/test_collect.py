"""The exporter against brokers that run beside it: what a scrape shows, and what is not shown any more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from tests.replication import cluster as clusters
from tests.replication.cluster import running_cluster, send_all, twins

from twinlog.client import Admin, BrokerRefused, ConsumerOptions, NetError, Outgoing, Producer, PushConsumer, StartFrom
from twinlog.exporter.broker_round import BrokerRounds, RoundLimits
from twinlog.exporter.collect_service import CollectService
from twinlog.exporter.facts import BrokerPlace
from twinlog.exporter.patterns import TopicPatterns
from twinlog.observe.groups.group_progress import GroupMember, Members
from twinlog.wire.errors import BodyError

FIRST = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=100)


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def until(condition: Callable[[], object]) -> None:
    await clusters.until(condition, "the scrape shows it")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def exporting(names: str, *, clock: Callable[[], float] | None = None, **limits):
    options = {} if clock is None else {"ticks_s": clock}
    service = CollectService(Admin(names), RoundLimits(**limits), interval_s=0.1, **options)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def rows(service: CollectService, name: str, **labels: str) -> dict[str, float]:
    """The series of a name that have these labels."""
    found = {}
    for line in service.exposition().decode().splitlines():
        match = re.fullmatch(rf"{name}(\{{.*\}})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            found[match[1] or ""] = float(match[2])
    return found


def one(service: CollectService, name: str, **labels: str) -> float | None:
    found = list(rows(service, name, **labels).values())
    return found[0] if len(found) == 1 else None


async def test_a_scrape_shows_topics_groups_clients_and_replicas(cluster):
    master = await cluster.start("master", "ASYNC_MASTER")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    got = []
    async with Admin(cluster.names) as admin:
        await admin.create_topic("Orders", queues=2)
    async with Producer(cluster.names, group="shop") as producer, exporting(cluster.names) as service:
        for number in range(6):
            await producer.send(Outgoing("Orders", f"order {number}"))
        consumer = PushConsumer(cluster.names, "billing", got.append, consumer_options=FIRST)
        consumer.subscribe("Orders")
        async with consumer:
            await until(lambda: one(service, "rocketmq_group_diff", topic="Orders", countOfOnlineConsumers="1") == 0)
            consumed = {"topic": "Orders", "group": "billing"}
            await until(lambda: one(service, "rocketmq_consumer_offset", **consumed) == 6)
            assert one(service, "rocketmq_producer_offset", broker="broker-a", topic="Orders") == 6
            assert one(service, "rocketmq_messages_in_total", topic="Orders", node_id="broker-a") == 6
            lag = {"topic": "Orders", "consumer_group": "billing", "is_retry": "false", "is_system": "false"}
            assert one(service, "rocketmq_consumer_lag_messages", **lag) == 0
            assert one(service, "rocketmq_consumer_lag_latency_milliseconds", **lag) == 0
            python = {"language": "python", "protocol_type": "remoting"}
            assert one(service, "rocketmq_consumer_connections", consume_mode="push", **python) == 1
            assert one(service, "rocketmq_producer_connections", **python) == 1
            assert one(service, "rocketmq_producer_count", group="shop") == 1
            await until(lambda: rows(service, "rocketmq_client_consume_ok_msg_tps", **consumed))
        for number in range(4):
            await producer.send(Outgoing("Orders", f"late {number}"))
        await until(lambda: one(service, "rocketmq_consumer_lag_messages", **lag) == 4)
        await until(lambda: (one(service, "rocketmq_group_get_latency_by_storetime", **consumed) or 0) > 0)
        await until(lambda: one(service, "rocketmq_ha_replica_lag_bytes", node_id="broker-a", replica="1") == 0)
        assert one(service, "rocketmq_broker_commitlog_diff", brokerIP=replica.address) == 0
        assert one(service, "rocketmq_brokeruntime_commitlog_maxoffset", brokerIP=master.address) > 0
        assert len(rows(service, "twinlog_exporter_broker_up")) == 2
        assert not [line for line in service.exposition().decode().splitlines() if " NaN" in line]


async def test_patterns_choose_the_topics(cluster):
    await cluster.start("master")
    async with Admin(cluster.names) as admin:
        for topic in ("Orders", "Orders-test", "Other"):
            await admin.create_topic(topic)
    async with exporting(cluster.names, patterns=TopicPatterns(["Orders*,!*-test"])) as service:
        await until(lambda: rows(service, "rocketmq_producer_offset"))
        shown = rows(service, "rocketmq_producer_offset")
        assert [labels for labels in shown if 'topic="Orders"' in labels] == list(shown)
        assert (one(service, "rocketmq_topic_number") or 0) > 3, "the broker has more than is shown"


async def test_the_series_of_a_broker_that_fails_or_hangs_disappear_and_the_others_stay(cluster):
    first = await cluster.start("first")
    await cluster.start("second", brokerName="broker-b")
    clock = Clock()
    async with exporting(cluster.names, clock=clock) as service:
        runtime = "rocketmq_brokeruntime_commitlog_maxoffset"
        await until(lambda: len(rows(service, runtime)) == 2)
        watched = next(one for one in service._watched.values() if one.place.address == first.address)
        answers, watched.rounds.facts = watched.rounds.facts, failing
        await until(lambda: len(rows(service, runtime)) == 1)
        assert not rows(service, runtime, brokerIP=first.address)
        assert one(service, "twinlog_exporter_broker_up", address=first.address) == 0
        assert (one(service, "twinlog_exporter_failures_total", address=first.address) or 0) > 0
        watched.rounds.facts = answers
        await until(lambda: len(rows(service, runtime)) == 2)
        hangs = asyncio.Event()

        async def hanging():
            """A round that never ends, once a round has succeeded."""
            if watched.facts is None:
                return await answers()
            hangs.set()
            await asyncio.Event().wait()

        watched.rounds.facts = hanging
        await hangs.wait()  # a round that ended after the clock has moved would be young for ever
        assert rows(service, runtime, brokerIP=first.address), "its last round is still young"
        clock.now_s += service.age_s_max(watched)
        await until(lambda: len(rows(service, runtime)) == 1)
        assert one(service, "twinlog_exporter_broker_up", address=first.address) == 0


async def failing() -> None:
    raise NetError("no answer within 5000 ms")


async def test_requests_at_the_same_time_are_limited_and_a_refusal_costs_one_topic(cluster):
    broker = await cluster.start("master")
    async with Admin(cluster.names) as admin:
        for number in range(20):
            await admin.create_topic(f"T{number}", queues=1)
    at_once = [0]
    most = 0
    async with exporting(cluster.names, concurrency=3) as service:
        asked = service._admin.broker_topic_stats

        async def counted(address: str, topic: str):
            nonlocal most
            at_once[0] += 1
            most = max(most, at_once[0])
            await asyncio.sleep(0)
            try:
                if topic == "T7":
                    raise BrokerRefused(202, 17, "topic[T7] not exist", address)
                return await asked(address, topic)
            finally:
                at_once[0] -= 1

        service._admin.broker_topic_stats = counted
        await until(lambda: rows(service, "rocketmq_producer_offset", topic="T19"))
        await until(lambda: not rows(service, "rocketmq_producer_offset", topic="T7"))
    assert 1 < most <= 3
    assert broker.address


async def test_a_send_is_counted_by_all_names_alike(cluster):
    master = await cluster.start("master")
    await send_all(master, [b"one", b"two"])
    async with exporting(cluster.names) as service:
        await until(lambda: (one(service, "rocketmq_brokeruntime_putmessage_times_total") or 0) >= 2)
        stored = sum(rows(service, "rocketmq_producer_offset").values())
        assert stored == sum(rows(service, "rocketmq_messages_in_total").values()) >= 2


async def test_what_nobody_foresaw_ends_the_series_of_its_broker_and_no_text_outlives_its_numbers(cluster, monkeypatch):
    """Seen to fail: the last numbers were shown on."""
    first = await cluster.start("first")
    await cluster.start("second", brokerName="broker-b")
    runtime = "rocketmq_brokeruntime_commitlog_maxoffset"

    async def odd() -> None:
        raise TypeError("an answer with a list where a number should be")

    def broken(found: object) -> None:
        raise ValueError("a label that cannot be written")

    async with exporting(cluster.names) as service:
        await until(lambda: len(rows(service, runtime)) == 2)
        watched = next(one for one in service._watched.values() if one.place.address == first.address)
        watched.rounds.facts = odd  # type: ignore[method-assign]
        await until(lambda: len(rows(service, runtime)) == 1)
        assert one(service, "twinlog_exporter_broker_up", address=first.address) == 0
        monkeypatch.setattr("twinlog.exporter.collect_service._render", broken)
        await until(lambda: not rows(service, runtime))


async def test_silent_clients_cost_little_time_are_forgotten_with_their_connection_and_garbled_rows_are_left_out(
    monkeypatch,
):
    now_s, asked = [0.0], []

    class Slow:
        async def running_info_at(self, address, group, client_id, *, timeout_ms):
            asked.append(client_id)
            now_s[0] += 3
            raise NetError("no answer")

    monkeypatch.setattr("twinlog.exporter.broker_round.time.monotonic", lambda: now_s[0])
    rounds = BrokerRounds(Slow(), BrokerPlace("C", "b", 0, "b:1"), RoundLimits())  # type: ignore[arg-type]

    def members(*names: str) -> dict[str, Members]:
        return {"G": Members(tuple(GroupMember(name, "1.2.3.4:5", "JAVA", 479) for name in names))}

    everybody = [f"c{number}" for number in range(50)]
    assert await rounds._client_numbers(members(*everybody)) == () and len(asked) == 4, "not 50 times three seconds"
    await rounds._client_numbers(members(*everybody))
    assert asked == everybody[:8], "those that are known to be silent are left out"
    await rounds._client_numbers(members("other"))
    assert set(rounds._silent_clients) == {"other"}, "clients come and go for years"

    async def garbled(key: str) -> str:
        if key == "bad":
            raise BodyError("not a table")
        return key

    assert await rounds._each(["good", "bad", "fine"], garbled) == {"good": "good", "fine": "fine"}
