"""Damaged records of a running broker come back from its twin, and are never served before that."""

from __future__ import annotations

import os
import random

import pytest
from tests.broker.running import broker_conf, connected, pull, running_broker
from tests.replication.cluster import log_bytes, running_cluster, send_all, twins, until

from twinlog.replication import repair_queue
from twinlog.replication.errors import ReplicationError
from twinlog.wire.codes import ResponseCode
from twinlog.wire.message import decode_messages

BODIES = [b"message %03d %s" % (number, b"x" * 100) for number in range(60)]
CONF = {"slaveReadEnable": True}


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def old_pair(cluster, *, role="SYNC_MASTER", **more):
    """A master and a replica that were started again: they did not write their records themselves."""
    for _ in range(2):
        master = await cluster.start("master", role, **CONF, **more)
        replica = await cluster.start("replica", "SLAVE", 1, **CONF, **more)
        await twins(master, replica)
        if not master.context.store.log_end:
            assert await send_all(master, BODIES) == BODIES
            await twins(master, replica)
            await cluster.stop("replica")
            await cluster.stop("master")
    return master, replica


def place_of(broker, number):
    return broker.context.store.unit("T", 0, number)[:2]


def flip(broker, number, bit=None):
    """Flip a bit of the record of one message, as a disk does."""
    at, size = place_of(broker, number)
    bit = 8 * size // 2 if bit is None else bit
    segment = broker.context.store.commit_log.segment_at(at)
    position = at - segment.base + bit // 8
    descriptor = os.open(segment.path, os.O_RDWR)
    try:
        os.pwrite(descriptor, bytes([os.pread(descriptor, 1, position)[0] ^ 1 << bit % 8]), position)
    finally:
        os.close(descriptor)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a machine that is busy elsewhere, a repair may take longer than a pull waits for it."""
    monkeypatch.setattr("twinlog.broker.pulls.pull.REPAIR_S_MAX", 30.0)
    monkeypatch.setattr("twinlog.broker.replication.repair_service._TIMEOUT_MS", 20_000)


async def bodies_of(broker):
    """What a consumer gets, which goes on where it is told to."""
    found, offset = [], 0
    async with connected(broker) as connection:
        while True:
            answer = await pull(connection, queueOffset=str(offset), maxMsgNums="1000", timeout_ms=40_000)
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
                return found
            found += [one.body for one in decode_messages(answer.body or b"")]
            offset = int(answer.fields["nextBeginOffset"])


def repair_of(broker):
    return next(one.__self__ for one in broker.context.store.on_damaged_record)


@pytest.mark.parametrize("side", ["master", "replica"])
async def test_a_flipped_bit_is_repaired_from_the_twin_and_the_reader_gets_the_message(cluster, side):
    master, replica = await old_pair(cluster)
    hurt, twin = (master, replica) if side == "master" else (replica, master)
    flip(hurt, 20)
    assert await bodies_of(hurt) == BODIES, "the pull waits until the message is back"
    assert log_bytes(hurt) == log_bytes(twin)
    assert repair_of(hurt).repaired == 1 and not hurt.context.store.damaged
    assert repair_of(twin).repaired == 0 and not twin.context.store.damaged


async def test_the_last_record_of_a_quiet_log_is_repaired(cluster):
    master, replica = await old_pair(cluster)
    for hurt in (master, replica):
        flip(hurt, len(BODIES) - 1)
        assert await bodies_of(hurt) == BODIES
    assert log_bytes(master) == log_bytes(replica)


async def test_twins_with_a_secret_prove_it_before_they_are_believed(cluster):
    master, replica = await old_pair(cluster, haSharedSecret="known to both of them")
    for hurt in (master, replica):
        flip(hurt, 20)
        assert await bodies_of(hurt) == BODIES


async def test_random_flips_on_both_sides_are_all_repaired(cluster):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    master, replica = await old_pair(cluster)
    numbers = chance.sample(range(0, len(BODIES), 2), 30)  # a whole record follows each of them
    for hurt, hit in ((master, numbers[:15]), (replica, numbers[15:])):
        for number in hit:
            flip(hurt, number, chance.randrange(8 * place_of(hurt, number)[1]))
    assert await bodies_of(replica) == BODIES
    assert await bodies_of(master) == BODIES
    assert log_bytes(master) == log_bytes(replica)
    assert repair_of(master).repaired == repair_of(replica).repaired == 15


async def test_a_master_without_a_replica_leaves_the_message_out_until_one_is_back(cluster, monkeypatch):
    monkeypatch.setattr(repair_queue, "PAUSE_MS_MIN", 50)
    master, _ = await old_pair(cluster, role="ASYNC_MASTER")
    await cluster.stop("replica")
    await until(lambda: not master.replication.master.views(), "the master has lost its replica")
    flip(master, 20)
    assert await bodies_of(master) == BODIES[:20] + BODIES[21:]
    assert list(master.context.store.damaged) == [place_of(master, 20)[0]]
    await until(lambda: repair_of(master).failures > 1, "it is tried again")
    await cluster.start("replica", "SLAVE", 1, **CONF)
    await until(lambda: not master.context.store.damaged, "it is repaired")
    assert await bodies_of(master) == BODIES


async def test_what_is_damaged_on_both_sides_stays_so_and_is_not_served(cluster, monkeypatch):
    monkeypatch.setattr(repair_queue, "PAUSE_MS_MIN", 50)
    master, replica = await old_pair(cluster)
    before = log_bytes(master)
    flip(master, 20, 900)
    flip(replica, 20, 901)
    damaged = log_bytes(master), log_bytes(replica)
    for hurt in (master, replica):
        assert await bodies_of(hurt) == BODIES[:20] + BODIES[21:]
        await until(lambda hurt=hurt: repair_of(hurt).failures > 2, "it is tried again and again")
    assert (log_bytes(master), log_bytes(replica)) == damaged
    flip(replica, 20, 901)  # an operator brings the replica's back
    await until(lambda: log_bytes(master) == before, "then the master's is repaired")


async def test_nothing_is_fetched_when_that_is_switched_off(cluster):
    master, _ = await old_pair(cluster, haRepairFromTwin=False)
    flip(master, 20)
    assert await bodies_of(master) == BODIES[:20] + BODIES[21:]
    await until(lambda: repair_of(master).failures, "an attempt that asks nobody")
    assert repair_of(master).repaired == 0 and list(master.context.store.damaged)


async def test_a_broker_of_the_same_name_with_another_log_is_not_a_twin(cluster, tmp_path, monkeypatch):
    """Its records are whole, at the same places and of the same sizes; only their content differs."""
    monkeypatch.setattr(repair_queue, "PAUSE_MS_MIN", 50)
    master, _ = await old_pair(cluster, role="ASYNC_MASTER")
    await cluster.stop("replica")
    async with running_broker(broker_conf(tmp_path / "other", **CONF)) as other:
        assert await send_all(other, BODIES) == BODIES
        assert place_of(other, 20) == place_of(master, 20)

        async def members(*_):
            return [{0: master.address, 1: other.address}]

        monkeypatch.setattr(master.replication.group, "members", members)
        flip(master, 20)
        damaged = log_bytes(master)
        async with connected(master) as connection:
            await pull(connection, maxMsgNums="1000")
        await until(lambda: repair_of(master).failures > 2, "it is tried again and again")
        assert "another record" in repair_of(master)._reason
    assert log_bytes(master) == damaged


async def test_a_replica_joins_a_master_with_a_damaged_record_by_repairing_it_and_cuts_nothing(cluster):
    """Otherwise the logs "differ", so the replica is refused, and with failover it cuts its own good copy."""
    master, _ = await old_pair(cluster, role="ASYNC_MASTER")
    await cluster.stop("replica")
    flip(master, 20)
    replica = await cluster.start("replica", "SLAVE", 1, **CONF)
    await twins(master, replica)
    assert repair_of(master).repaired == 1 and replica.replication.replica.divergence is None
    assert replica.replication.replica.status.refusals == 0
    assert await bodies_of(replica) == await bodies_of(master) == BODIES


async def test_a_replica_with_a_damaged_record_joins_again_after_it_is_repaired(cluster):
    master, replica = await old_pair(cluster, role="ASYNC_MASTER")
    flip(replica, 20)
    joins = replica.replication.replica.status.reconnects
    replica.replication.replica._receiver.end(ReplicationError("the link is lost"))
    await until(lambda: replica.replication.replica.status.reconnects > joins, "it has joined again")
    await twins(master, replica)
    assert repair_of(replica).repaired == 1 and replica.replication.replica.divergence is None
    assert replica.replication.replica.status.refusals == 0


async def test_a_replica_keeps_its_record_when_a_started_master_has_lost_its_own(cluster):
    """Otherwise the logs "differ" there, and with failover the replica cuts the last good copy."""
    master, replica = await old_pair(cluster, role="ASYNC_MASTER")
    whole = log_bytes(replica)
    place, _ = place_of(master, 20)
    await cluster.stop("replica")
    flip(master, 20)
    await cluster.stop("master")
    (cluster.home / "master" / "abort").touch()  # not a clean stop: the whole log is looked through
    master = await cluster.start("master", "ASYNC_MASTER", **CONF)
    assert master.context.store.report.damages, "a filler stands in the place of the record"
    replica = await cluster.start("replica", "SLAVE", 1, **CONF)
    await until(lambda: f"has lost its record at {place}" in replica.replication.replica.status.reason, "it says why")
    assert replica.replication.replica.divergence is None and log_bytes(replica) == whole
