"""Start and end of a broker: order, refusals, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
import types

import pytest
from tests.broker.running import broker_conf, connected, pull, running_broker, send

from twinlog.broker.broker import Broker
from twinlog.broker.embedded import EmbeddedBroker
from twinlog.broker.ports import free_port
from twinlog.broker.upkeep.maintenance_service import MaintenanceService
from twinlog.store.errors import PluginError, RecoveryStopped, StoreLocked
from twinlog.store.plugins import StoreWrapper

JAVA_TOPICS = {
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_wheel_timer": (1, 6),
}


async def test_a_fresh_broker_has_javas_topics_and_groups(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as broker:
        ctx = broker.context
        assert {name: (row.write_queue_nums, row.perm) for name, row in ctx.topics.rows.items()} == JAVA_TOPICS
        assert set(ctx.groups.rows) == {
            "TOOLS_CONSUMER",
            "FILTERSRV_CONSUMER",
            "SELF_TEST_C_GROUP",
            "CID_ONS-HTTP-PROXY",
            "CID_ONSAPI_PULL",
            "CID_ONSAPI_PERMISSION",
            "CID_ONSAPI_OWNER",
            "CID_RMQ_SYS_TRANS",
        }


async def test_metadata_and_a_clean_mark_are_left_behind(tmp_path):
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as client:
        await send(client, b="Fresh")
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()
    assert "Fresh" in json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]


async def test_a_second_broker_on_the_same_store_is_refused_before_it_listens(tmp_path):
    async with running_broker(broker_conf(tmp_path)):
        with pytest.raises(StoreLocked):
            async with running_broker(broker_conf(tmp_path)):
                pass


async def test_a_port_that_is_taken_is_named_and_the_store_is_closed(tmp_path):
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with running_broker(broker_conf(tmp_path, listenPort=port)):
                pass
    assert not (tmp_path / "abort").exists()


async def test_ports_open_only_after_recovery(tmp_path, monkeypatch):
    port = free_port()
    refused = []

    def probe_the_port(self, *arguments):
        with contextlib.closing(socket.socket()) as probe:
            refused.append(probe.connect_ex(("127.0.0.1", port)) != 0)
        return open_store(self, *arguments)

    open_store = Broker._open_store
    monkeypatch.setattr(Broker, "_open_store", probe_the_port)
    async with running_broker(broker_conf(tmp_path, listenPort=port)):
        assert refused == [True]


class Counting(StoreWrapper):
    count = 0

    def append(self, draft):
        Counting.count += 1
        return self.inner.append(draft)


def counting(store, settings):
    return Counting(store)


async def test_a_store_plug_in_sees_every_send(tmp_path, monkeypatch):
    monkeypatch.setattr(Counting, "count", 0)
    monkeypatch.setitem(sys.modules, "plugged", types.SimpleNamespace(counting=counting))
    conf = broker_conf(tmp_path, messageStorePlugIn="plugged:counting")
    async with running_broker(conf) as broker, connected(broker) as client:
        for _ in range(3):
            assert (await send(client, i="UNIQ_KEY\x01A\x02")).code == 0
        assert Counting.count == 3


async def test_a_plug_in_that_does_not_exist_stops_the_start(tmp_path):
    with pytest.raises(PluginError):
        async with running_broker(broker_conf(tmp_path, messageStorePlugIn="no.such:thing")):
            pass


def explaining(store, context):
    wrapper = StoreWrapper(store)
    wrapper.plugin_context = context
    return wrapper


async def test_a_plug_in_has_the_brokers_settings_of_now_its_statistics_and_its_listeners(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "broker_plugins_under_test", sys.modules[__name__])
    conf = broker_conf(tmp_path, messageStorePlugIn="broker_plugins_under_test:explaining")
    async with running_broker(conf) as broker, connected(broker) as client:
        ctx, given = broker.context, broker.context.store.plugin_context
        assert given.store_settings is ctx.conf.store
        assert given.broker_settings is ctx.settings
        assert given.stats is ctx.stats
        await client.request(25, {}, b"maxMessageSize=2048\n")
        await send(client, b="T", e="1")  # makes the topic
        assert given.store_settings.message_bytes_max == 2048
        # A message that no listener got, as of a plug-in that keeps messages elsewhere: only the plug-in reports it.
        waiting = asyncio.create_task(pull(client, sysFlag="6"))
        while not len(ctx.holds) and not waiting.done():
            await asyncio.sleep(0)
        dispatched, listeners = [], list(ctx.store.on_arrival)
        ctx.store.on_dispatch.append(dispatched.extend)
        ctx.store.on_arrival.clear()
        assert (await send(client, b="T")).code == 0
        ctx.store.on_arrival += listeners
        assert len(ctx.holds) == 1
        given.arrived(dispatched)
        assert (await waiting).code == 0
        assert len(dispatched) == 1


async def test_an_error_in_a_service_ends_the_broker_loudly(tmp_path, monkeypatch):
    async def fail(self) -> None:
        raise RuntimeError("a service broke")

    monkeypatch.setattr(MaintenanceService, "run", fail)
    broker = Broker(broker_conf(tmp_path))
    with pytest.raises(RuntimeError, match="a service broke"):
        await asyncio.wait_for(broker.run(), 10)
    assert not (tmp_path / "abort").exists()


def test_an_embedded_broker_serves_from_a_thread_and_cleans_up(tmp_path):
    with EmbeddedBroker(tmp_path) as broker:
        host, port = broker.broker_address.split(":")
        socket.create_connection((host, int(port)), 5).close()
        assert broker.namesrv_address.startswith("127.0.0.1:")
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), 1)
    assert (tmp_path / "store" / "config" / "topics.json").exists()


def test_an_embedded_broker_that_cannot_start_raises_the_reason(tmp_path):
    with EmbeddedBroker(tmp_path), pytest.raises(StoreLocked):
        EmbeddedBroker(tmp_path).start()


async def test_a_broker_can_be_stopped_while_it_recovers(tmp_path, monkeypatch):
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def recover(settings, *, stopped, **_):
        loop.call_soon_threadsafe(began.set)
        while not stopped():
            time.sleep(0.001)
        raise RecoveryStopped(tmp_path, 1)

    monkeypatch.setattr("twinlog.broker.opening.open_store", recover)
    task = asyncio.create_task(Broker(broker_conf(tmp_path)).run())
    async with asyncio.timeout(5):
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_settings_that_nothing_reads_are_logged_by_an_embedded_broker_too(tmp_path, caplog):
    with EmbeddedBroker(tmp_path, {"flushDisktype": "SYNC_FLUSH"}):
        assert "flushDisktype is unknown, ignored; did you mean flushDiskType?" in caplog.text


async def test_both_ports_share_what_may_be_held_of_unfinished_frames(tmp_path):
    conf = broker_conf(tmp_path, maxUnfinishedFrameBytes=20_000_000, frameProgressTimeoutSeconds=7)
    async with running_broker(conf) as broker:
        inbounds = {server.inbound for server in broker.servers}
        assert [(one.bytes_max, one.progress_s_max) for one in inbounds] == [(20_000_000, 7)]
