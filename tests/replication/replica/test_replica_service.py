"""A replica and masters of a test's own making: what they send, when they hang up, and what goes wrong here."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.replication.test_services import SEGMENT, log_bytes, now_ms, open_store, send, until

from twinlog.net.pool import ConnectionPool
from twinlog.replication.replica import handshake, receiver, replica_service
from twinlog.replication.replica.handshake import MasterFacts
from twinlog.replication.replica.join import LogRange
from twinlog.replication.replica.replica_service import MasterAddresses, ReplicaIdentity, ReplicaService
from twinlog.replication.transfer import encode_head
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.errors import ReadOnlySegment
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import segment_name

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Follower:
    """A replica of a store that follows whoever talks to it."""

    def __init__(self, home: Path, master_end: int = 0) -> None:
        self.store = open_store(home, "SLAVE")
        self.connections = 0
        self.clock_ms, self.ticks = now_ms(), 0
        self.service = ReplicaService(
            lambda: ReplicationSettings(),
            self.store,
            ReplicaIdentity("C", "b", 1, "instance"),
            ConnectionPool(),
            clock_ms=lambda: self.clock_ms,
            ticks_ms=lambda: self.ticks,
        )
        self.service._join = self._join
        self._master_end = master_end

    async def _join(self, addresses: MasterAddresses) -> MasterFacts:
        return MasterFacts(LogRange(0, self._master_end))

    @contextlib.asynccontextmanager
    async def following(self, talk: Conversation):
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await talk(reader, writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.service.master_is_at(MasterAddresses(ha=f"127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        running = asyncio.create_task(self.service.run())
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.close()
            self.store.close()


@pytest.fixture
def master_log(tmp_path):
    """A log of several files; (its end, its bytes by range)."""
    with open_store(tmp_path / "master", "ASYNC_MASTER") as master:
        send(master, 1500)
        yield master


async def answer_with(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *parts: bytes) -> None:
    """Send the parts as packets of their own after the first report, then listen."""
    await reader.readexactly(8)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.03)
    while await reader.read(1000):
        pass


@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize("cut", [5, 12, 40])
async def test_an_empty_replica_that_is_far_behind_begins_at_the_masters_offset_even_if_a_header_comes_alone(
    tmp_path, monkeypatch, master_log, cut, has_file
):
    monkeypatch.setattr(receiver, "_FAR_BEHIND_BYTES", 1000)
    begin = master_log.log_end - master_log.log_end % SEGMENT
    data = log_bytes(master_log, begin, master_log.log_end)
    stream = encode_head(begin, len(data)) + data
    if has_file:  # as a Java replica makes it when it hears its first heartbeat
        first = tmp_path / "replica" / "commitlog" / segment_name(0)
        first.parent.mkdir(parents=True)
        first.write_bytes(bytes(SEGMENT))
    replica = Follower(tmp_path / "replica", master_log.log_end)

    async def talk(reader, writer):
        await answer_with(reader, writer, stream[:cut], stream[cut:])

    async with replica.following(talk):
        await until(lambda: replica.store.whole_end == master_log.log_end)
        assert replica.store.log_start == begin and replica.connections == 1
        assert log_bytes(replica.store, begin, replica.store.log_end) == data


async def test_a_master_that_closes_every_link_is_asked_less_and_less_often(tmp_path, monkeypatch):
    waits: list[float] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        waits.append(seconds)
        return asyncio.timeout(seconds if seconds == 5 else 0.01)  # five seconds are a connection's

    monkeypatch.setattr(replica_service, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": timeout}))
    replica = Follower(tmp_path / "replica")

    async def talk(reader, writer):
        await reader.readexactly(8)

    async with replica.following(talk):
        await until(lambda: replica.connections == 6)
    assert [wait for wait in waits if wait != 5][:5] == [0.2, 0.4, 0.8, 1.6, 3.2]


@contextlib.asynccontextmanager
async def mute_master(replica: Follower):
    """(its addresses, the connections it took): a master that never answers, as behind a network that was cut."""
    del replica.service._join
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: taken.append(writer), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    running = asyncio.create_task(replica.service.run())
    try:
        yield MasterAddresses(ha="127.0.0.1:1", remoting=address), taken
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await replica.service._pool.close()
        for writer in taken:
            writer.close()
        server.close()
        replica.store.close()


async def test_a_master_that_does_not_answer_is_asked_again_over_a_new_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "_TIMEOUT_MS", 50)
    replica = Follower(tmp_path / "replica")
    async with mute_master(replica) as (addresses, taken):
        replica.service.master_is_at(addresses)
        await until(lambda: len(taken) >= 3)


async def test_a_new_master_is_asked_over_a_new_connection(tmp_path):
    """One that was open before may have ended on the other side, while the network was cut."""
    replica = Follower(tmp_path / "replica")
    async with mute_master(replica) as (addresses, taken):
        before = await replica.service._pool.get(addresses.remoting)
        replica.service.master_is_at(addresses)
        await until(lambda: len(taken) == 2)
        assert not before.closed  # what waits for an answer there may still get one


async def test_a_damaged_record_is_counted_and_asked_for_again(tmp_path, master_log):
    size = 4096
    good = log_bytes(master_log, 0, size)
    bad = bytearray(good)
    bad[150] ^= 1
    replica = Follower(tmp_path / "replica")

    async def talk(reader, writer):
        await answer_with(reader, writer, encode_head(0, size) + (bytes(bad) if replica.connections == 1 else good))

    async with replica.following(talk):
        await until(lambda: replica.store.whole_end > 3000)
        assert replica.service.status.damaged_transfers == 1 and replica.connections == 2
        assert log_bytes(replica.store, 0, replica.store.whole_end) == good[: replica.store.whole_end]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ReadOnlySegment(Path("file"))])
async def test_a_disk_that_cannot_be_written_is_reported_and_tried_again(tmp_path, monkeypatch, master_log, error):
    good, broken = log_bytes(master_log, 0, 4096), True
    tail = CommitLog.tail

    def failing(log: CommitLog):
        if broken and log is replica.store.commit_log:
            raise error
        return tail(log)

    monkeypatch.setattr(CommitLog, "tail", failing)
    replica = Follower(tmp_path / "replica")

    async def talk(reader, writer):
        await answer_with(reader, writer, encode_head(0, 4096) + good)

    async with replica.following(talk) as running:
        await until(lambda: replica.connections >= 2 and str(error) in replica.service.status.reason)
        assert not running.done() and replica.store.log_end == 0
        broken = False
        await until(lambda: replica.store.whole_end > 3000)


async def test_silence_is_measured_by_a_clock_that_cannot_be_set(tmp_path):
    replica = Follower(tmp_path / "replica")

    async def talk(reader, writer):
        await answer_with(reader, writer)

    async with replica.following(talk):
        await until(lambda: replica.service.status.state == "following")
        replica.ticks, replica.clock_ms = 1000, replica.clock_ms + 3_600_000
        await until(lambda: replica.service.status._mark == (1000, 0))  # a look at the link
        assert replica.connections == 1
        replica.ticks = 30_000
        await until(lambda: replica.connections == 2)


async def test_bytes_that_were_received_and_not_taken_in_leave_no_records_behind(tmp_path, monkeypatch, master_log):
    monkeypatch.setattr(receiver, "_FAR_BEHIND_BYTES", 1000)
    monkeypatch.setattr(receiver, "_BULK_RECEIVE_BYTES", 1000)
    replica, data = Follower(tmp_path / "replica", master_log.log_end), log_bytes(master_log, 0, SEGMENT)
    first = next(at for at in range(100, 5000) if data[at + 4 : at + 8] == data[4:8])  # where the second record begins
    hang_up = asyncio.Event()

    async def talk(reader, writer):
        await reader.readexactly(8)
        writer.write(encode_head(0, first) + data[:first])
        await reader.readexactly(8)  # the first record is reported; the next ones come to the thread
        writer.write(encode_head(first, 20_000) + data[first : first + 20_000] + bytes(12)[:5] + b"\xff" * 7)
        await hang_up.wait()

    async with replica.following(talk):
        await until(lambda: "is the address a master's HA port?" in replica.service.status.reason)
        end = replica.store.log_end
        segment = replica.store.commit_log.segments[0]
        assert end >= first and not any(segment.view(end, 30_000))
        hang_up.set()
