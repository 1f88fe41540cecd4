"""Three brokers, an etcd and a name server as processes: the short form of tests/faults/rows/failover.py."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator

import pytest
from tests.faults.failover_group import FailoverGroup
from tests.faults.load import Load, make_topic, read_all
from tests.faults.rows.failover import etcd_away_once, kill_with_tail, stop_once, tails_set_aside
from tests.interop.replica_pair import pull_everything, until

from twinlog.client import Outcome, Outgoing
from twinlog.client.sync import Producer
from twinlog.net.pool import ConnectionPool
from twinlog.store.offline.tail_file import Damage, read_tail
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
GROUP, LATER = "CG_FAULTS", "Later"


@pytest.fixture
def seed() -> int:
    chosen = random.randrange(1 << 30)
    print(f"seed {chosen}")
    return chosen


def test_a_killed_master_loses_nothing_and_returns_without_its_tail(tmp_path, seed):
    """Offsets, delayed messages and open transactions go on at the new master, too."""
    with FailoverGroup.running(tmp_path, failoverLeaseSeconds="2") as group:
        load = Load(group.group.names.address, seed)
        group.in_sync(3)
        with open_transaction_and_delayed_message(group):
            with load.running():
                load.go_on(50)
            commit(group, 7)
            with load.running():
                killed = kill_with_tail(group, load)
            leader = group.group.brokers[group.leader()].address
            assert offset_at(leader) == 7
            wanted = {b"delayed", b"in a transaction"}
            until(lambda: wanted == {m.body for m in pull_everything(leader, LATER, 4)}, "both are delivered", 60)
        group.in_sync(3)
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
        tails = tails_set_aside(group.group.brokers[killed].store)
    assert not verdict.broken, f"{load.history}: {verdict}"
    assert tails and not any(isinstance(one, Damage) for tail in tails for one in read_tail(tail))


@pytest.mark.interop
def test_a_stopped_master_and_one_without_etcd_acknowledge_nothing(tmp_path, seed):
    with FailoverGroup.running(tmp_path, failoverLeaseSeconds="2") as group:
        load = Load(group.group.names.address, seed)
        group.in_sync(3)
        stop_once(group, load)
        etcd_away_once(group, load)
        verdict = group.group.judge(load, group.leader())
        group.equal_logs()
        epochs = [one.epoch for one in group.history()]
    assert not verdict.broken, f"{load.history}: {verdict}"
    assert epochs == sorted(set(epochs)) and len(epochs) >= 3, "each master has an epoch of its own"


@contextlib.contextmanager
def open_transaction_and_delayed_message(group: FailoverGroup) -> Iterator[None]:
    """A producer that is asked for the outcome of its transaction later, and then commits it."""
    names = group.group.names.address
    make_topic(names, group.group.brokers[group.leader()].address, topic=LATER)
    with Producer(names, "PG_Later", check_transaction=lambda message: Outcome.COMMIT) as producer:
        producer.send(Outgoing(LATER, b"delayed", delay_level=3))
        producer.send_in_transaction(Outgoing(LATER, b"in a transaction"), lambda message: Outcome.UNKNOWN)
        yield


def commit(group: FailoverGroup, offset: int) -> None:
    """Commit at the master, and wait until the replicas have it."""
    brokers = group.group.brokers
    read_all(brokers[group.leader()].address)  # the first pull makes the group
    fields = {"consumerGroup": GROUP, "topic": "Faults", "queueId": "0", "commitOffset": str(offset)}
    assert ask(brokers[group.leader()].address, RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    until(lambda: all(offset_at(one.address) == offset for one in brokers.values()), "all have the offset", 30)


def offset_at(address: str) -> int | None:
    fields = {"consumerGroup": GROUP, "topic": "Faults", "queueId": "0"}
    answer = ask(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int((answer.fields or {})["offset"]) if answer.code == 0 else None


def ask(address: str, code: int, fields: dict[str, str]) -> Command:
    async def request() -> Command:
        pool = ConnectionPool()
        try:
            return await pool.request(address, code, fields)
        finally:
            await pool.close()

    return asyncio.run(request())
