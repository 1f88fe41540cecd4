"""A name server or a master that answers nonsense: the broker goes on, says so, and follows again when it is sane."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.replication.cluster import QUICK, end_of, read_all, running_cluster, send_all, status, twins, until

from twinlog.broker.broker import Broker
from twinlog.broker.naming.member_groups import MemberGroup
from twinlog.broker.naming.register_service import RegisterService
from twinlog.broker.stats.stats_service import StatsService
from twinlog.broker.upkeep.flush_service import FlushService
from twinlog.net.connection import Request
from twinlog.net.server import Server
from twinlog.replication.replica.metadata_follower import Follower
from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.replication.replica.replica_service import MasterAddresses, ReplicaService
from twinlog.store.errors import DispatchFailed
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.twinlog_codes import TwinlogCode

REPLICA = {"brokerRole": "SLAVE", "brokerId": 1, **QUICK}


@contextlib.asynccontextmanager
async def playing(handlers: dict[int, Callable[[Request], Command | None]]) -> AsyncIterator[str]:
    """A server with these answers; yields its address."""
    server = Server(handlers)
    await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def looked_at(seconds: float, broker) -> None:
    """Let the tasks have several rounds; the broker must still answer after them."""
    await asyncio.sleep(seconds)
    assert (await status(broker))["role"]


async def test_a_replica_outlives_addresses_that_no_resolver_takes(tmp_path):
    asked = []

    def registered(request: Request) -> Command:
        asked.append(request)
        return request.reply(fields={"masterAddr": "..:5", "haServerAddr": "..:5"})

    members = b'{"brokerMemberGroup":{"cluster":"C","brokerName":"broker-a","brokerAddrs":{0:"..:5",2:"a b:1"}}}'
    answers = {
        RequestCode.REGISTER_BROKER: registered,
        RequestCode.GET_BROKER_MEMBER_GROUP: lambda request: request.reply(body=members),
    }
    async with (
        playing(answers) as names,
        running_broker(broker_conf(tmp_path, namesrvAddr=names, **REPLICA)) as broker,
    ):
        await looked_at(1.3, broker)
        assert asked and (await status(broker))["following"]["state"] == "waiting"


@pytest.mark.parametrize("line", ["namesrvAddr=..:5", "namesrvAddr=127.0.0.1:1;..:5", "haMasterAddress=a..b:5"])
async def test_a_bad_address_is_refused_before_it_is_written(tmp_path, line):
    conf_file = tmp_path / "broker.conf"
    conf_file.write_text("brokerName=broker-a\n")
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as connection:
        assert broker.context is not None
        before = broker.context.conf.properties()
        answer = await connection.request(RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())
        assert answer.code == 1 and line in (answer.remark or "") and "write for example" in (answer.remark or "")
        assert broker.context.conf.properties() == before
        assert (await send(connection)).code == 0


def fake_master(**answers: Callable[[Request], Command | None]) -> dict[int, Callable[[Request], Command | None]]:
    """A Twinlog master's remoting port that greets and gives no metadata, except for these answers."""
    said = {"passNumber": "1", "logStart": "0", "logEnd": "0", "segmentBytes": str(4 * 1024 * 1024)}
    table = {
        TwinlogCode.REPLICA_HELLO: lambda request: request.reply(fields=said),
        TwinlogCode.METADATA_CHANGES: lambda request: request.reply(body=b"{}"),
        TwinlogCode.LOG_DIGESTS: lambda request: request.reply(body=b"[]"),
    }
    return {**table, **{TwinlogCode[name]: answer for name, answer in answers.items()}}


@contextlib.asynccontextmanager
async def replica_of(tmp_path, master_answers, **settings: object) -> AsyncIterator[Broker]:
    """A replica whose name server names a master with these answers."""
    async with playing(master_answers) as master, asyncio.timeout(30):
        known = {"masterAddr": master, "haServerAddr": master}
        names = {RequestCode.REGISTER_BROKER: lambda request: request.reply(fields=known)}
        async with playing(names) as names_at:
            conf = broker_conf(tmp_path, namesrvAddr=names_at, **{**REPLICA, **settings})
            async with running_broker(conf) as broker:
                yield broker


def sync_of(broker: Broker) -> MetadataSyncService:
    assert broker.replication is not None
    return broker.replication.sync


NOT_CHANGES = [b"not JSON", b"[]", b"7", b'{"topics":7}', b'{"topics":{"changed":[1]}}', b"\xff", b""]


@pytest.mark.parametrize("body", NOT_CHANGES)
async def test_a_metadata_answer_that_is_not_one_is_an_error_in_the_status_and_the_replica_goes_on(tmp_path, body):
    answers = fake_master(METADATA_CHANGES=lambda request: request.reply(body=body))
    async with replica_of(tmp_path, answers) as broker:
        await until(lambda: sync_of(broker).status.rounds >= 2, "a second round")
        kinds = (await status(broker))["metadata"]
        assert body == b"" or any(kind["error"] for kind in kinds.values())
        assert "failedTasks" not in await status(broker), "such an answer is expected of a strange master"


@pytest.mark.parametrize(
    "answers",
    [
        {"REPLICA_HELLO": lambda request: request.reply(fields={"passNumber": "x", "logEnd": "-1"})},
        {"REPLICA_HELLO": lambda request: request.reply(fields={})},
        {"REPLICA_HELLO": lambda request: request.reply(fields={"passNumber": "1", "logStart": "9", "logEnd": "1"})},
    ],
)
async def test_an_invalid_answer_to_hello_is_shown_in_the_status(tmp_path, answers):
    async with replica_of(tmp_path, fake_master(**answers)) as broker:
        assert broker.replication is not None
        replica = broker.replication.replica.status
        await until(lambda: replica.state in ("connecting", "refused") and "to 127" not in replica.reason, "an error")
        assert (await status(broker))["following"]["reason"]


@pytest.mark.parametrize("body", [b"not JSON", b"{}", b"[1,2,3]", b"\xff", b'["\\ud800"]'])
async def test_invalid_checksums_are_shown_in_the_status(tmp_path, body):
    async with running_broker(broker_conf(tmp_path)) as master:
        assert await send_all(master, [b"x"]) == [b"x"]
        end = str(end_of(master))
    said = {"passNumber": "1", "logStart": "0", "logEnd": end, "segmentBytes": str(4 * 1024 * 1024)}
    answers = fake_master(
        REPLICA_HELLO=lambda request: request.reply(fields=said),
        LOG_DIGESTS=lambda request: request.reply(body=body),
    )
    async with replica_of(tmp_path, answers) as broker:
        assert broker.replication is not None
        replica = broker.replication.replica.status
        await until(lambda: replica.state in ("connecting", "refused") and "to 127" not in replica.reason, "an error")
        assert "failedTasks" not in await status(broker)


async def fails(*args: object, **kwargs: object) -> None:
    raise KeyError("nobody thought of this")


def fails_at_once(*args: object) -> None:
    raise KeyError("nobody thought of this")


@pytest.mark.parametrize(
    ("task", "owner", "method"),
    [
        ("ReplicaService", ReplicaService, "_follow"),
        ("MetadataSyncService", MetadataSyncService, "_sync_with_twinlog"),
        ("RegisterService", RegisterService, "_register_with"),
        ("MasterSearch", MemberGroup, "members"),
        ("IdentityWatch", MemberGroup, "rival"),
        ("StatsService", StatsService, "run"),
    ],
)
async def test_an_unexpected_error_of_a_fenced_task_is_shown_while_the_broker_serves(
    tmp_path, monkeypatch, caplog, task, owner, method
):
    monkeypatch.setattr(owner, method, fails)
    async with replica_of(tmp_path, fake_master()) as broker:
        assert broker.context is not None and broker.replication is not None
        failing = broker.context.fence.failing
        if task in ("ReplicaService", "MetadataSyncService"):
            broker.replication.replica.master_is_at(MasterAddresses("127.0.0.1:1", "127.0.0.1:1"))
        await until(lambda: task in failing(), f"{task} has failed")
        shown = (await status(broker))["failedTasks"][task]
        assert shown["error"] == "KeyError: 'nobody thought of this'" and shown["failures"] >= 1
        async with connected(broker) as connection:
            answer = await connection.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert f"twinlogFailedTask_{task}".encode() in (answer.body or b"")
        errors = [r for r in caplog.records if r.exc_info and f"task={task} " in r.getMessage()]
        assert len(errors) == 1, "logged once"


async def test_one_kind_of_metadata_that_fails_unexpectedly_does_not_keep_the_others_away(tmp_path, monkeypatch):
    taken = Follower.take

    def take(self: Follower, *args):
        if self.kind == "topics":
            raise KeyError("nobody thought of this")
        return taken(self, *args)

    monkeypatch.setattr(Follower, "take", take)
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master")
        assert await send_all(master, [b"x"]) == [b"x"]
        replica = await cluster.start("replica", "SLAVE", 1)
        assert replica.context is not None
        fence = replica.context.fence
        await until(lambda: "MetadataSyncService" in fence.failing(), "the round ended with the error")
        kinds = (await status(replica))["metadata"]
        assert kinds["topics"]["error"].startswith("KeyError") and kinds["groups"]["syncedMs"]
        await twins(master, replica)


async def test_an_unexpected_error_in_the_flush_ends_the_broker_loudly(tmp_path, monkeypatch):
    monkeypatch.setattr(FlushService, "run", fails)
    with pytest.raises(KeyError):
        async with running_broker(broker_conf(tmp_path)):
            await asyncio.sleep(1)


async def test_an_unexpected_error_in_a_replicas_dispatch_ends_the_broker_loudly_and_the_next_start_has_it_all(
    tmp_path, monkeypatch
):
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master")
        assert await send_all(master, [b"one"]) == [b"one"]
        replica = await cluster.start("replica", "SLAVE", 1)
        await twins(master, replica)
        store = replica.context.store
        with monkeypatch.context() as broken:
            broken.setattr(store.queues, "dispatch", fails_at_once)
            assert await send_all(master, [b"two"]) == [b"two"]
            await until(lambda: store._closed, "the replica has ended")
        with pytest.raises(DispatchFailed, match="start the broker again"):
            await cluster.stop("replica")
        replica = await cluster.start("replica", "SLAVE", 1)
        assert await send_all(master, [b"three"]) == [b"three"]
        await twins(master, replica)
        assert [message.body for message in await read_all(replica)] == [b"one", b"two", b"three"]


async def test_a_master_that_never_answers_a_metadata_request_is_named_asked_again_and_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("twinlog.replication.replica.metadata_sync_service._TIMEOUT_MS", 50)
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("master")
        asked: list[Request] = []
        handlers = master.servers[0]._options.handlers
        answering = handlers[TwinlogCode.METADATA_CHANGES]
        master.servers[0]._options.handlers = {**handlers, TwinlogCode.METADATA_CHANGES: asked.append}
        assert await send_all(master, [b"one"]) == [b"one"]
        replica = await cluster.start("replica", "SLAVE", 1)
        await until(lambda: len(asked) >= 3, "it is asked again and again")
        assert await send_all(master, [b"two"]) == [b"two"]
        await twins(master, replica)
        said = await status(replica)
        assert "did not answer request 30903 within 50 ms" in said["metadata"]["topics"]["error"]
        assert said["metadata"]["topics"]["failures"] >= 2 and "failedTasks" not in said
        master.servers[0]._options.handlers = {**handlers, TwinlogCode.METADATA_CHANGES: answering}
        for server in master.servers:
            for connection in list(server.connections):
                connection.close("so that the next one is answered")
        assert replica.context is not None and replica.replication is not None
        followed = replica.replication.sync.status.kind("topics")
        await until(lambda: followed.error == "", "the answer has been taken over, and saved")
        assert "T" in replica.context.topics
        assert (await status(replica))["metadata"]["topics"]["error"] == ""
