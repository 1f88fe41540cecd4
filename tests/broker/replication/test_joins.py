"""Which replicas a master takes, which it refuses, and how a refused one returns, on whole brokers."""

import asyncio
import socket

import pytest
from tests.broker.running import SEND_FIELDS, broker_conf, connected
from tests.replication.cluster import ask, end_of, log_bytes, read_all, running_cluster, send_all, status, twins, until

from twinlog.cli.replication.rejoin import CutRefused, cut_tail, plan_cut
from twinlog.net.busy_wait import BusyWait
from twinlog.replication.errors import IdentityTaken
from twinlog.replication.replica.replica_service import ReplicaService
from twinlog.wire.codes import RequestCode


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


def bodies(mark: str, count: int = 50) -> list[bytes]:
    return [f"{mark} {number}".encode() for number in range(count)]


def state_of(broker):
    return broker.replication.replica.status.state


async def test_two_replicas_with_one_id_the_second_is_refused_and_counts_for_nothing(cluster):
    master = await cluster.start("master", "SYNC_MASTER", inSyncReplicas=3)
    first = await cluster.start("first", "SLAVE", 1)
    await twins(master, first)
    apart = {"haMasterAddress": f"127.0.0.1:{master.replication.master.port}", "namesrvAddr": "127.0.0.1:1"}
    second = await cluster.start("second", "SLAVE", 1, **apart)
    await until(lambda: state_of(second) == "refused", "the second one is refused")
    assert "another broker with brokerId=1 is already connected" in second.replication.replica.status.reason
    assert [view["brokerId"] for view in (await status(master))["replicas"]] == [1]
    assert master.replication.master.acks.acks() == [end_of(master)]
    assert end_of(second) == 0


@pytest.mark.parametrize(("role", "micros", "stays_awake"), [
    ("SYNC_MASTER", 10_000, True), ("SYNC_MASTER", 0, False), ("ASYNC_MASTER", 10_000, False),
])  # fmt: skip
async def test_a_replica_stays_awake_between_transfers_only_if_its_reports_are_awaited(
    cluster, monkeypatch, role, micros, stays_awake
):
    turns = []
    monkeypatch.setattr(BusyWait, "_turn", lambda self: turns.append(self))
    master = await cluster.start("master", role, haBusyWaitMicros=0)
    replica = await cluster.start("replica", "SLAVE", 1, haBusyWaitMicros=micros)
    await twins(master, replica)
    async with connected(master) as connection:
        for _ in range(100):
            assert (await connection.request(310, SEND_FIELDS, b"m")).code == 0
    await twins(master, replica)
    assert bool(turns) == stays_awake


async def test_a_second_broker_of_one_identity_does_not_start_while_the_first_one_answers(cluster):
    master = await cluster.start("master")
    await send_all(master, bodies("m"))
    with pytest.raises(IdentityTaken, match=f"broker-a with brokerId=0 is running at {master.address}: two masters"):
        await cluster.start("second")
    assert await send_all(master, [b"more"]) == [b"more"]
    await cluster.start("replica", "SLAVE", 1)
    with pytest.raises(IdentityTaken, match="with brokerId=1 is running at"):
        await cluster.start("second", "SLAVE", 1)
    await cluster.stop("master")
    await cluster.start("second")  # its identity is free now


async def test_a_copied_store_does_not_count_as_a_second_replica(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await send_all(master, bodies("m"))
    await twins(master, replica)
    instance = cluster.home / "replica" / "config" / "twinlogInstance"
    copied = cluster.home / "copy" / "config" / "twinlogInstance"
    copied.parent.mkdir(parents=True)
    copied.write_text(instance.read_text())
    copy = await cluster.start("copy", "SLAVE", 2)
    await until(lambda: state_of(copy) == "refused", "the copy is refused")
    assert "is a copy of the one of brokerId=1" in copy.replication.replica.status.reason
    assert len(master.replication.master.acks.acks()) == 1


async def test_a_replica_that_connects_twice_counts_once(cluster):
    master = await cluster.start("master", "SYNC_MASTER", inSyncReplicas=3, slaveTimeout=300)
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    again = type(replica.replication.replica)(
        lambda: replica.conf.replication,
        replica.context.store,
        replica.replication.replica._identity,
        replica.replication.replica._pool,
        clock_ms=replica.context.clock_ms,
    )
    again.master_is_at(replica.replication.replica._addresses)
    running = asyncio.create_task(again.run())
    try:
        await until(lambda: len(master.replication.master.views()) == 2, "both connections are there")
        await until(lambda: all(v.state == "sending" for v in master.replication.master.views()), "and both report")
        assert len(master.replication.master.acks.acks()) == 1
        assert await send_all(master, [b"needs two replicas"]) == []
    finally:
        running.cancel()


async def test_a_connection_without_a_name_never_counts_beyond_the_registered_replicas(cluster):
    master = await cluster.start("master", "SYNC_MASTER", slaveTimeout=300)
    with socket.create_connection(("127.0.0.1", master.replication.master.port)) as stranger:
        stranger.sendall(bytes(8))
        await until(lambda: len(master.replication.master.views()) == 1, "the stranger is there")
        await until(lambda: master.replication.master.acks.registered_replicas == 0, "nobody is registered")
        assert master.replication.master.acks.acks() == []
        assert await send_all(master, [b"no replica has it"]) == []


@pytest.mark.parametrize(("answer", "counted"), [([{0: "me", 1: "r"}], 1), ([{0: "me"}, {}], 0), ([{}], 1), ([], 1)])
async def test_a_connection_without_a_name_counts_only_once_name_servers_were_asked(
    cluster, monkeypatch, answer, counted
):
    master = await cluster.start("master", "SYNC_MASTER", slaveTimeout=300)
    asked = asyncio.Event()

    async def members(*_):
        await asked.wait()
        return [{number: master.address if name == "me" else name for number, name in one.items()} for one in answer]

    monkeypatch.setattr(master.replication.group, "members", members)
    acks = master.replication.master.acks
    with socket.create_connection(("127.0.0.1", master.replication.master.port)) as stranger:
        stranger.sendall(bytes(8))
        await until(lambda: any(row.usable for row in acks.rows()), "the stranger has reported")
        assert acks.acks() == []
        asked.set()
        await until(lambda: len(acks.acks()) == counted, "what name servers say, or nobody can, counts")


async def test_a_replica_that_is_ahead_is_refused_sets_its_tail_aside_and_rejoins(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await send_all(master, bodies("common"))
    await twins(master, replica)
    common = end_of(master)
    await cluster.stop("replica")
    alone = await cluster.start("replica", "ASYNC_MASTER", brokerName="elsewhere")
    assert await send_all(alone, bodies("only here", 5)) == bodies("only here", 5)
    ahead = end_of(alone)
    await cluster.stop("replica")

    replica = await cluster.start("replica", "SLAVE", 1)
    await until(lambda: state_of(replica) == "refused", "a replica that is ahead is refused")
    reason = (await status(replica))["following"]["reason"]
    assert f"the replica ends at {ahead}, {ahead - common} bytes beyond the master's {common}" in reason
    assert f"rejoin --store {cluster.home / 'replica'} --cut {common}" in reason
    assert end_of(replica) == ahead, "nothing was cut by itself"
    await cluster.stop("replica")

    settings = broker_conf(cluster.home / "replica").store
    assert plan_cut(settings, common) == (ahead, 5)
    kept = cut_tail(settings, common)
    assert b"only here 4" in kept.read_bytes() and kept.stat().st_size == ahead - common
    replica = await cluster.start("replica", "SLAVE", 1)
    assert await send_all(master, bodies("more")) == bodies("more")
    await twins(master, replica)
    assert [message.body for message in await read_all(replica)] == [*bodies("common"), *bodies("more")]


async def test_a_replica_that_differs_is_refused_at_the_record_where_the_logs_part(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await send_all(master, bodies("common"))
    await twins(master, replica)
    common = end_of(master)
    await cluster.stop("replica")
    alone = await cluster.start("replica", "ASYNC_MASTER", brokerName="elsewhere")
    await send_all(alone, bodies("only here", 5))
    await cluster.stop("replica")
    await send_all(master, bodies("only there", 9))
    replica = await cluster.start("replica", "SLAVE", 1)
    await until(lambda: state_of(replica) == "refused", "a replica that differs is refused")
    reason = replica.replication.replica.status.reason
    assert "the logs differ from offset" in reason
    cut = int(reason.rpartition("--cut ")[2].split("`")[0])
    assert cut <= common
    await cluster.stop("replica")
    settings = broker_conf(cluster.home / "replica").store
    plan_cut(settings, cut)  # the offset that the operator is told is one that the log can be cut at
    cut_tail(settings, cut)
    await twins(master, await cluster.start("replica", "SLAVE", 1))


async def test_a_cut_inside_a_record_or_outside_of_the_log_is_refused_with_the_nearest_one(cluster):
    master = await cluster.start("master")
    await send_all(master, bodies("m", 3))
    end = end_of(master)
    settings = broker_conf(cluster.home / "master").store
    with pytest.raises(CutRefused, match="in use by a running broker; stop it first"):
        plan_cut(settings, end)
    await cluster.stop("master")
    size = end // 3
    with pytest.raises(CutRefused, match=f"use --cut {size} to cut it off as well, or --cut {2 * size} to keep it"):
        plan_cut(settings, size + 1)
    with pytest.raises(CutRefused, match=f"is outside of the log, which goes from 0 to {end}"):
        plan_cut(settings, end + 1)
    assert plan_cut(settings, end) == (end, 0) and plan_cut(settings, size) == (end, 2)


async def test_a_replica_that_heard_of_no_master_asks_again_although_its_link_is_up(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    replica.context.master_address = None  # what a name server says that has just started
    await until(lambda: replica.context.master_address == master.address, "the master is known again", 5)
    rounds = replica.replication.sync.status.rounds
    await until(lambda: replica.replication.sync.status.rounds > rounds, "metadata follow")


async def test_a_new_ha_master_address_is_followed_while_the_replica_runs(cluster):
    master = await cluster.start("master")
    await send_all(master, bodies("m"))
    nowhere = {"haMasterAddress": "127.0.0.1:1", "namesrvAddr": "127.0.0.1:1"}
    replica = await cluster.start("replica", "SLAVE", 1, **nowhere)
    update = f"haMasterAddress=127.0.0.1:{master.replication.master.port}\n".encode()
    answer = await ask(replica, RequestCode.UPDATE_BROKER_CONFIG, body=update)
    assert answer.code == 0, answer.remark
    await twins(master, replica)


async def test_a_master_address_that_was_taken_away_is_followed_no_longer(cluster):
    master = await cluster.start("master")
    await send_all(master, bodies("m"))
    ha = f"127.0.0.1:{master.replication.master.port}"
    replica = await cluster.start("replica", "SLAVE", 1, haMasterAddress=ha, namesrvAddr="127.0.0.1:1")
    await twins(master, replica)
    assert (await ask(replica, RequestCode.UPDATE_BROKER_CONFIG, body=b"haMasterAddress=\n")).code == 0
    await until(lambda: state_of(replica) == "waiting", "without an address there is no master")
    assert "no master is known yet" in replica.replication.replica.status.reason
    assert (await ask(replica, RequestCode.UPDATE_BROKER_CONFIG, body=f"haMasterAddress={ha}\n".encode())).code == 0
    await send_all(master, bodies("later"))
    await twins(master, replica)


async def test_after_an_unexpected_error_the_replica_follows_again(cluster, monkeypatch):
    failures, join = [LookupError("nobody foresaw this")], ReplicaService._join

    def broken_once(self, *args):
        if failures:
            raise failures.pop()
        return join(self, *args)

    monkeypatch.setattr(ReplicaService, "_join", broken_once)
    master = await cluster.start("master")
    await send_all(master, bodies("m"))
    replica = await cluster.start("replica", "SLAVE", 1)
    await until(lambda: "ReplicaService" in replica.context.fence.failing(), "the error is shown")
    await twins(master, replica)


async def test_a_replica_of_another_broker_is_refused(cluster):
    master = await cluster.start("master")
    await send_all(master, bodies("m"))
    ha = f"127.0.0.1:{master.replication.master.port}"
    other = await cluster.start(
        "other", "SLAVE", 1, brokerName="broker-b", haMasterAddress=ha, namesrvAddr="127.0.0.1:1"
    )
    await until(lambda: state_of(other) == "refused", "a replica of another broker is refused")
    assert "check brokerName and brokerClusterName" in other.replication.replica.status.reason


async def test_a_replica_serves_no_replicas(cluster):
    master = await cluster.start("master")
    first = await cluster.start("first", "SLAVE", 1)
    await twins(master, first)
    with socket.create_connection(("127.0.0.1", first.replication.master.port)) as link:
        link.setblocking(False)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(link, 1), 5) == b""
    assert (await status(first))["refusedConnections"] == 1


async def test_a_replica_whose_bytes_were_deleted_shows_it_and_reseeds_only_when_allowed(cluster):
    small = {"mappedFileSizeCommitLog": 64 * 1024}
    master = await cluster.start("master", **small)
    replica = await cluster.start("replica", "SLAVE", 1, **small)
    await send_all(master, bodies("old"))
    await twins(master, replica)
    await cluster.stop("replica")
    for number in range(8):
        await send_all(master, [body * 100 for body in bodies(f"new {number}")])
    assert end_of(master) > 4 * 64 * 1024
    log = master.context.store.commit_log
    master.context.store.flush()
    while log.log_start < 3 * 64 * 1024:
        log.drop_oldest()
    replica = await cluster.start("replica", "SLAVE", 1, **small)
    await until(lambda: state_of(replica) == "refused", "the replica is stuck")
    reason = replica.replication.replica.status.reason
    assert "the master has deleted the bytes" in reason and "haReseedAllowed=true" in reason
    before = log_bytes(replica)
    await cluster.stop("replica")
    replica = await cluster.start("replica", "SLAVE", 1, haReseedAllowed=True, **small)

    def caught_up():
        return state_of(replica) == "following" and replica.context.store.whole_end == end_of(master)

    await until(caught_up, "the replica began anew")
    begin = replica.context.store.log_start
    assert log_bytes(replica) == log_bytes(master)[begin - log.log_start :]
    kept = next((cluster.home / "replica" / "set-aside").glob("*/commitlog"))
    assert (kept / f"{0:020d}").read_bytes().startswith(before), "the old log was set aside"


async def test_ha_status_shows_replicas_to_java_tools(cluster):
    from twinlog.wire.bodies import HaRuntimeInfo, decode_body

    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await send_all(master, bodies("m"))
    await twins(master, replica)
    info = decode_body(HaRuntimeInfo, (await ask(master, RequestCode.GET_BROKER_HA_STATUS)).body)
    assert info.master and info.in_sync_slave_nums == 1 and info.master_commit_log_max_offset == end_of(master)
    (link,) = info.ha_connection_info
    await until(lambda: master.replication.master.acks.acks() == [end_of(master)], "the replica has reported")
    assert link.in_sync and link.diff <= end_of(master)
    info = decode_body(HaRuntimeInfo, (await ask(replica, RequestCode.GET_BROKER_HA_STATUS)).body)
    assert not info.master and info.ha_client_runtime_info.max_offset == end_of(replica)
    assert info.ha_client_runtime_info.master_addr == f"127.0.0.1:{master.replication.master.port}"
