"""A master's and a replica's services on real sockets and stores, in one process."""

import asyncio
import contextlib
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.net.pool import ConnectionPool
from twinlog.replication.errors import JoinRefused
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master import master_service
from twinlog.replication.master.master_service import MasterService
from twinlog.replication.master.passes import PASSES_MAX, Passes
from twinlog.replication.replica import memory_reuse, receiver
from twinlog.replication.replica.replica_service import MasterAddresses, ReplicaIdentity, ReplicaService
from twinlog.settings.replication import ReplicationSettings
from twinlog.settings.store import StoreSettings
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore

SEGMENT = 64 * 1024


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def open_store(path: Path, role: str) -> MessageStore:
    settings = StoreSettings(
        root_dir=str(path), segment_bytes=SEGMENT, queue_file_bytes_given=20_000, index_slots=100, index_entries=1000
    )
    return MessageStore.open(settings, role=role)


def send(store: MessageStore, count: int, size: int = 100) -> None:
    for number in range(count):
        draft = Draft(topic="T", queue_id=number % 2, body=b"%d" % number * size, born_host=("127.0.0.1", 1))
        store.append(draft)
    store.dispatch_pending()


async def until(condition, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def log_bytes(store: MessageStore, begin: int, end: int) -> bytes:
    parts, at = [], begin
    while at < end:
        chunk = store.commit_log.chunk(at, end - at)
        assert chunk is not None
        parts.append(bytes(chunk))
        at += len(chunk)
    return b"".join(parts)


def port_above_silence() -> tuple[int, socket.socket]:
    """A port to listen on, and what keeps the one below it free: a replica asks there, and nobody may answer."""
    while True:
        below = socket.socket()
        below.bind(("127.0.0.1", 0))  # without `listen`, who connects is refused
        port = below.getsockname()[1] + 1
        with socket.socket() as probe, contextlib.suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", port))
            return port, below
        below.close()


class Pair:
    """A master store with its service, and a replica store with its."""

    def __init__(self, tmp_path: Path, **settings) -> None:
        port, self._below = port_above_silence()
        self.settings = ReplicationSettings(listen_port=port, heartbeat_ms=200, **settings)
        self.master = open_store(tmp_path / "master", "ASYNC_MASTER")
        self.replica = open_store(tmp_path / "replica", "SLAVE")
        self.acked = 0
        self.tasks: list[asyncio.Task] = []

    def start_master(self) -> None:
        self.master_service = MasterService(
            lambda: self.settings,
            self.master.commit_log,
            bind_address="127.0.0.1",
            clock_ms=now_ms,
            on_acks=lambda: setattr(self, "acked", self.master_service.acks.safe_end(1, self.master.log_end)),
        )
        self.master_service.listen()
        self.tasks.append(asyncio.create_task(self.master_service.run()))

    def start_replica(self) -> None:
        self.pool = ConnectionPool()
        identity = ReplicaIdentity("C", "b", 1, "instance-1")
        self.replica_service = ReplicaService(lambda: self.settings, self.replica, identity, self.pool, clock_ms=now_ms)
        self.replica_service.master_is_at(MasterAddresses(ha=f"127.0.0.1:{self.master_service.port}"))
        self.tasks.append(asyncio.create_task(self.replica_service.run()))

    def send(self, count: int, size: int = 100) -> None:
        send(self.master, count, size)
        self.master_service.wake()

    async def joined(self) -> None:
        """The replica has made its first report."""
        await until(lambda: any(view.state == "sending" for view in self.master_service.views()))

    async def caught_up(self) -> None:
        await until(lambda: self.replica.whole_end == self.master.log_end and self.acked == self.master.log_end)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        with contextlib.suppress(AttributeError):
            await self.pool.close()
        self._below.close()
        self.master.close()
        self.replica.close()


@pytest.fixture(params=["in the loop", "in the thread", "where memory is expensive"], autouse=True)
def receiving(request, monkeypatch):
    """Every test runs as a replica that keeps up receives, as one that is far behind, and as one that reuses memory."""
    if request.param == "where memory is expensive":
        monkeypatch.setattr(memory_reuse, "_EXPENSIVE_SECONDS_PER_BYTE", -1)
        for limit in ("_SAMPLE_BYTES", "_ROUND_BYTES", "CACHED_BYTES_MIN"):
            monkeypatch.setattr(memory_reuse, limit, 1)
    if request.param != "in the loop":
        monkeypatch.setattr(receiver, "_TURN_BYTES_MAX", 1)
        monkeypatch.setattr(receiver, "_RECEIVE_BYTES", 10_000)
        monkeypatch.setattr(receiver, "_BULK_BYTES", 40_000)


@pytest.fixture
async def pair(tmp_path):
    pair = Pair(tmp_path)
    yield pair
    await pair.stop()


async def test_a_replica_is_its_masters_twin_in_bytes_and_queues(pair):
    pair.start_master()
    pair.start_replica()
    await pair.joined()
    for _ in range(5):
        pair.send(100)
        await asyncio.sleep(0)
    pair.send(1, size=20_000)
    await pair.caught_up()
    assert pair.replica.log_start == 0
    assert log_bytes(pair.replica, 0, pair.replica.log_end) == log_bytes(pair.master, 0, pair.master.log_end)
    assert [pair.replica.max_offset("T", queue) for queue in (0, 1)] == [251, 250]
    assert pair.replica.read("T", 0, 200).count == pair.master.read("T", 0, 200).count > 0


async def test_an_empty_replica_of_an_old_master_starts_at_the_newest_segment(pair):
    pair.start_master()
    pair.send(1000)
    assert pair.master.log_end > 2 * SEGMENT
    pair.start_replica()
    await pair.caught_up()
    begin = pair.replica.log_start
    assert begin == pair.master.log_end - pair.master.log_end % SEGMENT
    assert log_bytes(pair.replica, begin, pair.replica.log_end) == log_bytes(pair.master, begin, pair.master.log_end)


async def test_an_empty_replica_may_take_the_whole_history(tmp_path):
    pair = Pair(tmp_path, copy_whole_history=True)
    pair.start_master()
    pair.send(1000)
    pair.start_replica()
    await pair.caught_up()
    assert pair.replica.log_start == 0 and pair.replica.max_offset("T", 0) == 500
    await pair.stop()


async def test_a_lost_connection_is_made_again_and_nothing_is_missing(pair):
    pair.start_master()
    pair.start_replica()
    pair.send(10)
    await pair.caught_up()
    for _ in range(3):
        pair.master_service.drop_all("test")
        pair.send(50)
        await pair.caught_up()
    assert log_bytes(pair.replica, 0, pair.replica.log_end) == log_bytes(pair.master, 0, pair.master.log_end)
    assert pair.replica_service.status.reconnects >= 4


async def test_a_replica_whose_log_was_not_compared_shows_it(pair):
    pair.start_master()
    pair.start_replica()
    pair.send(10)
    await pair.caught_up()
    assert pair.replica_service.status.reason == "", "an empty log fits every master"
    pair.master_service.drop_all("test")
    pair.send(10)
    await pair.caught_up()
    asked = pair.master_service.port - 1
    reason = f"the logs were not compared: 127.0.0.1:{asked} does not answer"
    assert pair.replica_service.status.state == "following" and reason in pair.replica_service.status.reason


async def test_a_replica_that_is_stopped_while_it_catches_up_goes_on_where_its_log_ends(tmp_path):
    pair = Pair(tmp_path, copy_whole_history=True)
    pair.start_master()
    pair.send(4000)
    for part in (0.1, 0.5, 0.9):
        pair.start_replica()
        await until(lambda part=part: pair.replica.log_end > part * pair.master.log_end)
        task = pair.tasks.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await pair.pool.close()
        end = pair.replica.log_end
        assert log_bytes(pair.replica, 0, end) == log_bytes(pair.master, 0, end)
        await asyncio.sleep(0.03)
        assert pair.replica.log_end == end, "nobody writes after the stop"
    pair.start_replica()
    await pair.caught_up()
    assert log_bytes(pair.replica, 0, pair.replica.log_end) == log_bytes(pair.master, 0, pair.master.log_end)
    assert [pair.replica.max_offset("T", queue) for queue in (0, 1)] == [2000, 2000]
    await pair.stop()


async def test_acknowledgement_follows_the_replica_and_ends_with_it(pair):
    pair.start_master()
    pair.start_replica()
    pair.send(10)
    await pair.caught_up()
    safe = pair.master_service.acks.safe_end(1, pair.master.log_end)
    assert safe == pair.master.log_end
    pair.master_service.drop_all("test")
    assert pair.master_service.acks.safe_end(1, pair.master.log_end) == 0


@pytest.mark.parametrize("words", [b"\xff" * 8, b"\x7f" * 8, b"\x00" * 7 + b"\x01" + b"\x00" * 8])
async def test_garbage_on_the_ha_port_is_closed_counted_and_acknowledges_nothing(pair, words):
    pair.start_master()
    pair.send(10)
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.master_service.port)
    writer.write(words)
    async with asyncio.timeout(5):
        while await reader.read(65536):
            pass
    writer.close()
    assert pair.master_service.refused == 1 and pair.master_service.acks.acks() == []


async def test_a_silent_peer_is_dropped(tmp_path):
    pair = Pair(tmp_path)
    pair.settings = replace(pair.settings, silence_ms_max=300)
    pair.start_master()
    reader, _ = await asyncio.open_connection("127.0.0.1", pair.master_service.port)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    await pair.stop()


async def test_a_segment_that_was_cut_by_hand_ends_the_link_and_not_the_masters_loop(pair, monkeypatch):
    monkeypatch.setattr("twinlog.replication.master.replica_connection.send_file", lambda *_: 0)
    pair.start_master()
    pair.start_replica()
    await pair.joined()
    pair.send(1, size=20_000)  # too large to be copied
    await until(lambda: pair.master_service.refused)


async def test_a_failure_to_accept_is_logged_once_and_the_next_replica_gets_in(pair, monkeypatch, caplog):
    failures = iter([OSError(24, "Too many open files")] * 3)
    loop = asyncio.get_running_loop()
    accept = loop.sock_accept

    async def accepting(listener):
        for error in failures:
            raise error
        return await accept(listener)

    monkeypatch.setattr(master_service, "_ACCEPT_AGAIN_S", 0)
    monkeypatch.setattr(loop, "sock_accept", accepting)
    pair.start_master()
    pair.start_replica()
    await pair.joined()
    assert sum("cannot be accepted" in record.message for record in caplog.records) == 1


def test_passes_that_are_not_used_are_dropped_at_a_limit():
    passes, hello = Passes(), HelloHeader(cluster_name="C", broker_name="b", broker_id=1, instance="i")
    first, *_, last = [passes.issue(hello, "b", "C", 0) for _ in range(PASSES_MAX + 1)]
    assert passes.redeem(last, 1).identity == "i" and len(passes._holders) == PASSES_MAX - 1
    with pytest.raises(JoinRefused, match="pass is unknown, used or too old"):
        passes.redeem(first, 1)
