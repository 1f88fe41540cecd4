import asyncio
import contextlib
import struct
import threading
import zlib
from types import SimpleNamespace

import pytest

from twinlog.nameserver import broker_handlers
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.nameserver.registration_body import decode_registration
from twinlog.nameserver.route_table import RouteTable
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.telemetry.metrics import Metrics
from twinlog.wire.codes import RequestCode, ResponseCode

MASTER = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0", "haServerAddr": "h:2"}
TOPICS = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'


@contextlib.asynccontextmanager
async def running(tmp_path, text="", **more):
    text = f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\n{text}"
    ready = asyncio.Event()
    conf = load_nameserver_conf(text=text)
    service = NameServerService(conf, on_ready=lambda _: ready.set(), **more)
    task = asyncio.create_task(service.run())
    pool = ConnectionPool()
    try:
        await ready.wait()
        yield SimpleNamespace(service=service, pool=pool, address=f"127.0.0.1:{service.port}", task=task)
    finally:
        await pool.close()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_broker_registers_and_a_client_finds_its_topic(tmp_path):
    async with running(tmp_path) as it:
        answer = await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
        assert answer.code == 0
        route = await it.pool.request(it.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert b'"brokerAddrs":{"0":"127.0.0.1:1"}' in route.body


async def test_an_unknown_request_is_answered_as_unknown(tmp_path):
    async with running(tmp_path) as it:
        answer = await it.pool.request(it.address, 10)
        assert (answer.code, answer.remark) == (3, " request type 10 not supported")


async def test_a_broker_leaves_when_its_connection_closes_and_comes_back_by_registering(tmp_path):
    async with running(tmp_path) as it:
        table = it.service.context.table
        for _ in range(2):
            await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
            assert list(table.topics) == ["T", "U"]
            it.pool.drop(it.address)
            await until(lambda: not table.live)
            assert (table.topics, table.brokers) == ({}, {})


async def test_a_client_that_leaves_takes_nobody_along(tmp_path):
    async with running(tmp_path) as it:
        await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
        other = ConnectionPool()
        await other.request(it.address, RequestCode.GET_BROKER_CLUSTER_INFO)
        await other.close()
        await until(lambda: len(it.service.server.connections) == 1)
        assert list(it.service.context.table.topics) == ["T", "U"]


async def test_a_silent_broker_leaves_and_its_connection_is_closed(tmp_path):
    clock = SimpleNamespace(ms=0)
    async with running(tmp_path, "scanNotActiveBrokerInterval=10", clock_ms=lambda: clock.ms) as it:
        await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
        connection = await it.pool.get(it.address)
        clock.ms = 120_001
        await until(lambda: connection.closed)
        assert it.service.context.table.topics == {}


async def test_a_replica_is_notified_that_its_master_left(tmp_path):
    told = asyncio.Queue()
    replica = Server({RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: lambda request: told.put_nowait(request.fields)})
    await replica.start("127.0.0.1", 0)
    try:
        async with running(tmp_path, "notifyMinBrokerIdChanged=true") as it:
            address = f"127.0.0.1:{replica.port}"
            await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
            await it.pool.request(
                it.address, RequestCode.REGISTER_BROKER, {**MASTER, "brokerId": "1", "brokerAddr": address}
            )
            await it.pool.request(it.address, RequestCode.UNREGISTER_BROKER, MASTER)
            async with asyncio.timeout(5):
                assert await told.get() == {
                    "minBrokerId": "1",
                    "minBrokerAddr": address,
                    "offlineBrokerAddr": "127.0.0.1:1",
                }
    finally:
        await replica.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:2", "[::1]:2"])
async def test_a_broker_that_cannot_be_notified_stops_nothing(tmp_path, address):
    async with running(tmp_path, "notifyMinBrokerIdChanged=true") as it:
        await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
        replica = {**MASTER, "brokerId": "1", "brokerAddr": address}
        assert (await it.pool.request(it.address, RequestCode.REGISTER_BROKER, replica)).code == 0
        await it.pool.request(it.address, RequestCode.UNREGISTER_BROKER, MASTER)
        answer = await it.pool.request(it.address, RequestCode.GET_BROKER_CLUSTER_INFO)
        assert answer.code == 0 and not it.task.done()


@pytest.mark.parametrize("key", ["brokerAddr", "haServerAddr"])
@pytest.mark.parametrize("bad", ["..:5", "bad", "h:0", "a b:1"])
async def test_an_address_that_nobody_could_connect_to_is_not_registered(tmp_path, key, bad):
    async with running(tmp_path, "notifyMinBrokerIdChanged=true") as it:
        answer = await it.pool.request(it.address, RequestCode.REGISTER_BROKER, {**MASTER, key: bad}, TOPICS)
        assert answer.code == 1 and f"{key}: address {bad!r}" in answer.remark and "host:port" in answer.remark
        assert it.service.context.table.live == {}


@pytest.mark.parametrize("address", ["broker-a:10911", "[::1]:10911", "::1:10911", "my_host.local:10911"])
async def test_names_and_ipv6_addresses_are_registered_as_they_are_written(tmp_path, address):
    async with running(tmp_path) as it:
        fields = {**MASTER, "brokerAddr": address, "haServerAddr": ""}
        assert (await it.pool.request(it.address, RequestCode.REGISTER_BROKER, fields, TOPICS)).code == 0
        assert it.service.context.table.brokers["b"].broker_addrs == {0: address}


async def test_requests_are_counted(tmp_path):
    metrics = Metrics()
    async with running(tmp_path, metrics=metrics) as it:
        await it.pool.request(it.address, RequestCode.REGISTER_BROKER, MASTER, TOPICS)
        text = metrics.exposition().decode()
        assert 'twinlog_namesrv_requests_total{request="REGISTER_BROKER"} 1.0' in text
        assert "twinlog_namesrv_topics 2.0" in text


async def test_a_port_in_use_is_named(tmp_path):
    async with running(tmp_path) as it:
        conf = load_nameserver_conf(
            text=f"listenPort={it.service.port}\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/k"
        )
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{it.service.port}"):
            await NameServerService(conf).run()


def inflating() -> bytes:
    """A compressed registration of two topics."""
    texts = ("{}", None, "T 4 4 6 SINGLE_TAG", "U 4 4 6 SINGLE_TAG", "[]")
    parts = (struct.pack(">i", 2) if text is None else struct.pack(">i", len(text)) + text.encode() for text in texts)
    return zlib.compress(b"".join(parts) + struct.pack(">i", 0))


LARGE = TOPICS.replace(b'"U"', b'"%b"' % (b"U" * 2_000_000))


@pytest.mark.parametrize(
    ("fields", "body"), [({**MASTER, "compressed": "true"}, inflating()), (MASTER, LARGE)], ids=["compressed", "large"]
)
async def test_others_are_answered_while_a_large_registration_is_read(tmp_path, monkeypatch, fields, body):
    go_on = threading.Event()

    def slowly(*args, **more):
        assert go_on.wait(10)
        return decode_registration(*args, **more)

    monkeypatch.setattr(broker_handlers, "decode_registration", slowly)
    async with running(tmp_path) as it:
        registering = asyncio.create_task(it.pool.request(it.address, RequestCode.REGISTER_BROKER, fields, body))
        route = await it.pool.request(it.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert route.code == ResponseCode.TOPIC_NOT_EXIST and not registering.done()
        go_on.set()
        assert (await registering).code == 0
        route = await it.pool.request(it.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert b'"brokerAddrs":{"0":"127.0.0.1:1"}' in route.body


async def test_a_broker_that_leaves_while_its_registration_is_read_is_not_registered(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*args, **more):
        begun.set()
        assert go_on.wait(10)
        return decode_registration(*args, **more)

    monkeypatch.setattr(broker_handlers, "decode_registration", slowly)
    async with running(tmp_path) as it:
        await it.pool.oneway(it.address, RequestCode.REGISTER_BROKER, {**MASTER, "compressed": "true"}, inflating())
        await until(begun.is_set)
        it.pool.drop(it.address)
        await until(lambda: not it.service.server.connections)
        go_on.set()
        await asyncio.to_thread(lambda: it.service._reader.submit(int).result())  # after the one before it
        await asyncio.sleep(0)
        assert not it.service.context.table.live


async def test_an_unexpected_error_of_a_background_task_is_counted_and_routes_are_still_given(tmp_path, monkeypatch):
    def fails(*_):
        raise KeyError("nobody thought of this")

    metrics = Metrics()
    monkeypatch.setattr("twinlog.nameserver.nameserver_service.notice_fields", fails)
    monkeypatch.setattr(RouteTable, "silent", fails)
    text = "notifyMinBrokerIdChanged=true\nscanNotActiveBrokerInterval=10"
    async with running(tmp_path, text, metrics=metrics) as it:
        await it.pool.request(it.address, RequestCode.REGISTER_BROKER, {**MASTER, "brokerId": "1"}, TOPICS)
        master = {**MASTER, "brokerAddr": "127.0.0.1:3"}
        await it.pool.request(it.address, RequestCode.REGISTER_BROKER, master, TOPICS)
        await until(lambda: len(it.service.fence.failing()) == 2)
        route = await it.pool.request(it.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert route.code == 0 and not it.task.done()
        assert 'twinlog_namesrv_task_failures_total{task="Notices"} 1.0' in metrics.exposition().decode()


async def test_begins_of_frames_are_dropped_by_the_settings(tmp_path):
    metrics = Metrics()
    text = "maxUnfinishedFrameBytes=16777216\nframeProgressTimeoutSeconds=7"
    async with running(tmp_path, text, metrics=metrics) as it:
        assert it.service.server.inbound.progress_s_max == 7
        writers = []
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", it.service.port)
            writer.write((15_000_000).to_bytes(4, "big") + b"\0\0\0\2{}" + bytes(7_000_000))
            writers.append(writer)
        await until(lambda: "maxUnfinishedFrameBytes" in it.service.context.limits.refused)
        assert metrics.samples()["twinlog_namesrv_unfinished_frame_bytes"] <= 16 * 1024 * 1024
        for writer in writers:
            writer.close()
