"""Frames that begin and do not end cost a bounded amount of memory, and their senders their connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from types import SimpleNamespace

import pytest

from twinlog.net.connection import Connection, ConnectionOptions, Request
from twinlog.net.inbound import BYTES_KEY, PROGRESS_KEY, Inbound, UnfinishedFrame
from twinlog.net.limits import Limits
from twinlog.net.server import Server
from twinlog.telemetry.metrics import Metrics
from twinlog.wire.command import Command, encode_command
from twinlog.wire.frame import take_frame

KIB = 1024


class Peer:
    """A connection without a socket."""

    def __init__(self, host: str = "a") -> None:
        self.peer = (host, 1)
        self.is_paused = False
        self.dropped: str | None = None
        self.frame = UnfinishedFrame(self)

    def drop_frame(self, reason: str) -> None:
        self.dropped = reason


def test_who_stopped_first_is_closed_first_when_the_budget_is_exceeded():
    limits = Limits()
    inbound = Inbound(1000 * KIB, limits=limits)
    stopped = [Peer() for _ in range(9)]
    for now_s, peer in enumerate(stopped):
        inbound.grow(peer.frame, 100 * KIB, now_s)
    slow = Peer()
    for now_s in range(10, 22):  # later than all of them, and never for long
        inbound.grow(slow.frame, 16 * KIB, now_s)
    assert [peer.dropped is not None for peer in stopped] == [True, True] + [False] * 7 and slow.dropped is None
    assert BYTES_KEY in str(stopped[0].dropped) and limits.refused == {BYTES_KEY: 2}
    assert inbound.bytes == 700 * KIB + 192 * KIB


def test_the_host_that_holds_most_pays_for_it():
    inbound = Inbound(1000 * KIB)
    honest = Peer("honest")
    inbound.grow(honest.frame, 90 * KIB, 0.0)  # before all others, and slower than they are
    greedy = [Peer("greedy") for _ in range(200)]
    for peer in greedy:
        inbound.grow(peer.frame, 50 * KIB, 1.0)
    assert honest.dropped is None
    assert sum(peer.dropped is None for peer in greedy) < 20 and inbound.bytes <= 1000 * KIB


def test_a_single_peer_cannot_exceed_the_budget():
    inbound, peer = Inbound(100 * KIB), Peer()
    inbound.grow(peer.frame, 101 * KIB, 0.0)
    assert peer.dropped and inbound.bytes == 0


def test_a_frame_must_grow_or_end_within_the_time():
    limits = Limits()
    inbound, stuck, slow, crumbs = Inbound(progress_s_max=60, limits=limits), Peer(), Peer(), Peer()
    for peer in (stuck, slow, crumbs):
        inbound.grow(peer.frame, 1, 0.0)
    for now_s in range(1, 300):
        inbound.grow(slow.frame, 2 * KIB, now_s)  # 16 kbit/s: sixteen MiB take two hours
        if crumbs.dropped is None:
            inbound.grow(crumbs.frame, 1, now_s)
        inbound.drop_late(now_s)
    assert PROGRESS_KEY in str(stuck.dropped) and crumbs.dropped and slow.dropped is None
    assert limits.refused == {PROGRESS_KEY: 2} and inbound.bytes == slow.frame.bytes
    inbound.end(slow.frame)
    inbound.drop_late(10_000)
    assert slow.dropped is None and inbound.bytes == 0


def test_a_peer_that_is_not_read_from_is_not_late():
    inbound, peer = Inbound(progress_s_max=60), Peer()
    inbound.grow(peer.frame, 1, 0.0)
    peer.is_paused = True
    inbound.drop_late(1000.0)
    peer.is_paused = False
    inbound.drop_late(1030.0)
    assert peer.dropped is None
    inbound.drop_late(1061.0)
    assert peer.dropped


def test_the_sum_is_right_whatever_peers_do():
    dice = random.Random(1)
    inbound, peers, work = Inbound(500, progress_s_max=20), [Peer(str(n % 3)) for n in range(20)], []
    for now_s in range(5_000):
        peer = dice.choice(peers)
        match dice.randrange(5):
            case 0 | 1:
                inbound.grow(peer.frame, dice.randrange(1, 80), now_s)
            case 2:
                inbound.end(peer.frame)
            case 3 if not work or dice.random() < 0.3:
                work.append(dice.randrange(100))
                inbound.take(work[-1])
            case _ if work:
                inbound.give_back(work.pop())
        inbound.drop_late(now_s)
        assert inbound.bytes == sum(one.frame.bytes for one in peers) <= 500
        assert inbound.work_bytes == sum(work)


def test_one_that_cannot_go_on_does_not_stop_the_others(caplog):
    inbound, went_on = Inbound(100), []
    inbound.take(101)
    inbound.wait(lambda: went_on.append("first"))
    inbound.wait(lambda: 1 // 0)  # type: ignore[arg-type]
    inbound.wait(lambda: went_on.append("last"))
    inbound.give_back(101)
    assert went_on == ["first", "last"]
    assert "a connection that waited cannot continue" in caplog.text


# -- with sockets ---------------------------------------------------------------------------------


def run_on(loop_kind: str, work) -> None:
    factory = None if loop_kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


BOTH_LOOPS = pytest.mark.parametrize("loop_kind", ["asyncio", "uvloop"])
BEGIN = (15 * 1024 * KIB).to_bytes(4, "big") + b"\0\0\0\2{}"  # of a frame of 15 MiB


@contextlib.asynccontextmanager
async def serving(inbound: Inbound, handlers):
    server = Server(handlers, inbound=inbound)
    await server.start("127.0.0.1", 0)
    peers: list[socket.socket] = []

    def connect() -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.setblocking(False)
        peers.append(peer)
        return peer

    try:
        yield server, connect
    finally:
        for peer in peers:
            peer.close()
        await server.stop()


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@BOTH_LOOPS
def test_begins_of_large_frames_are_held_up_to_the_budget_and_others_are_served(loop_kind, caplog):
    async def sixty_begins() -> None:
        loop, inbound = asyncio.get_running_loop(), Inbound(1000 * KIB)
        async with serving(inbound, {11: lambda request: request.reply(body=request.body)}) as (server, connect):
            for count in range(60):
                peer = connect()
                with contextlib.suppress(ConnectionError):
                    await loop.sock_sendall(peer, BEGIN + bytes(100 * KIB))
                assert inbound.bytes <= 1000 * KIB
                await until(lambda count=count: inbound.bytes > min(count, 7) * 100 * KIB)
            assert len(server.connections) < 15
            honest, frame = connect(), encode_command(Command(11, 1, body=bytes(300 * KIB)))
            for at in range(0, len(frame), 50 * KIB):
                await loop.sock_sendall(honest, frame[at : at + 50 * KIB])
                await asyncio.sleep(0)
            received = bytearray()
            while (answer := take_frame(received)) is None:
                received += await loop.sock_recv(honest, 1 << 20)
            assert answer.body == bytes(300 * KIB)
        await until(lambda: inbound.bytes == 0)

    run_on(loop_kind, sixty_begins())
    assert "closing a connection with an unfinished request" in caplog.text and BYTES_KEY in caplog.text


@BOTH_LOOPS
def test_a_frame_that_is_never_finished_closes_its_connection(loop_kind, caplog):
    async def begin_and_wait() -> None:
        loop, inbound = asyncio.get_running_loop(), Inbound(progress_s_max=0.05)
        async with serving(inbound, {}) as (server, connect):
            peer, other = connect(), connect()
            await loop.sock_sendall(peer, BEGIN[:3])
            await loop.sock_sendall(other, encode_command(Command(11, 1)))
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(peer, 1) == b""
            assert await loop.sock_recv(other, 1000)
            assert inbound.bytes == 0 and len(server.connections) == 1

    run_on(loop_kind, begin_and_wait())
    assert PROGRESS_KEY in caplog.text


@BOTH_LOOPS
def test_bodies_in_work_count_and_make_the_next_requests_wait(loop_kind):
    async def ask_much() -> None:
        loop, inbound, begun, gate = asyncio.get_running_loop(), Inbound(500 * KIB), [], asyncio.Event()

        async def slow(request: Request) -> Command:
            begun.append(request.opaque)
            await gate.wait()
            return request.reply()

        async with serving(inbound, {25: slow}) as (server, connect):
            peer = connect()
            frames = b"".join(encode_command(Command(25, n, body=bytes(40 * KIB))) for n in range(100))
            sending = asyncio.ensure_future(loop.sock_sendall(peer, frames))
            await until(lambda: inbound.is_full)
            for _ in range(100):
                await asyncio.sleep(0)
            other = connect()  # which has nothing in work itself
            await loop.sock_sendall(other, frames[: 30 * KIB])
            # The first part has been read alone: a whole frame in one chunk would have been handled.
            await until(lambda: sum(one.is_paused for one in server.connections) == 2)
            await loop.sock_sendall(other, frames[30 * KIB : 41 * KIB])
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(begun) == 13
            gate.set()
            await sending
            await until(lambda: len(begun) == 101 and inbound.work_bytes == 0)

    run_on(loop_kind, ask_much())


async def test_a_pause_of_ours_does_not_make_a_frame_late():
    now_s = [1000.0]
    inbound = Inbound(100, progress_s_max=60)
    connection = Connection(ConnectionOptions(inbound=inbound))
    connection._loop = SimpleNamespace(time=lambda: now_s[0])  # type: ignore[assignment]
    transport = SimpleNamespace(pause_reading=lambda: None, resume_reading=lambda: None, abort=lambda: None)
    connection._transport = transport  # type: ignore[assignment]
    inbound.take(101)
    connection.data_received(BEGIN)
    assert connection.is_paused
    now_s[0] += 300
    inbound.give_back(101)
    inbound.drop_late(now_s[0] + 59)
    assert inbound.bytes == len(BEGIN)
    inbound.drop_late(now_s[0] + 61)
    assert inbound.bytes == 0


def test_the_metrics_show_what_is_held():
    metrics, inbound = Metrics(), Inbound()
    inbound.watch(metrics, "x")
    inbound.grow(Peer().frame, 12, 0.0)
    inbound.take(7)
    assert metrics.samples() == {"x_unfinished_frame_bytes": 12, "x_unfinished_frames": 1, "x_work_bytes": 7}
