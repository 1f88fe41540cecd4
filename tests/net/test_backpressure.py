"""A peer that asks for much and reads nothing costs little memory, and gets everything once it reads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

import pytest

from twinlog.net.connection import ConnectionOptions, Request
from twinlog.net.pool import connect
from twinlog.net.server import Server
from twinlog.wire.command import Command, encode_command
from twinlog.wire.frame import encode_prefix, take_frame

ANSWER_BYTES = 256 * 1024
REQUESTS = 300


def large(request: Request) -> list:
    header = b'{"code":0,"flag":1,"language":"JAVA","opaque":%d,"version":479}' % request.opaque
    return [encode_prefix(len(header), ANSWER_BYTES), header, memoryview(bytes(ANSWER_BYTES))]


BOTH_LOOPS = pytest.mark.parametrize("loop_kind", ["asyncio", "uvloop"])


def run_on(loop_kind: str, work) -> None:
    factory = None if loop_kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


@BOTH_LOOPS
def test_answers_wait_for_a_peer_that_does_not_read(loop_kind):
    run_on(loop_kind, flood())


async def flood() -> None:
    handled = []

    def handler(request: Request) -> list:
        handled.append(request.opaque)
        return large(request)

    server = Server({11: handler})
    await server.start("127.0.0.1", 0)
    try:
        loop = asyncio.get_running_loop()
        peer = socket.create_connection(("127.0.0.1", server.port))
        peer.setblocking(False)
        await loop.sock_sendall(peer, b"".join(encode_command(Command(11, n)) for n in range(REQUESTS)))
        while await settled(handled) or not handled:
            pass
        assert len(handled) < REQUESTS / 2
        (connection,) = server.connections
        assert connection._transport.get_write_buffer_size() < 16 * 1024 * 1024
        assert await received(loop, peer) == list(range(REQUESTS))
        peer.close()
    finally:
        await server.stop()


async def settled(handled: list) -> bool:
    """Whether more requests are still being handled."""
    before = len(handled)
    await asyncio.sleep(0.05)
    return len(handled) != before


async def received(loop: asyncio.AbstractEventLoop, peer: socket.socket, count: int = REQUESTS) -> list[int]:
    buffer, opaques = bytearray(), []
    while len(opaques) < count:
        buffer += await loop.sock_recv(peer, 1 << 20)
        while frame := take_frame(buffer):
            opaques.append(int(frame.header.split(b'"opaque":')[1].split(b",")[0]))
    return opaques


@contextlib.asynccontextmanager
async def serving(handlers, **options):
    server = Server(handlers, **options)
    await server.start("127.0.0.1", 0)
    peer = socket.create_connection(("127.0.0.1", server.port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setblocking(False)
    try:
        yield server, peer
    finally:
        peer.close()
        await server.stop()


@BOTH_LOOPS
def test_requests_wait_while_too_many_of_a_peer_are_being_answered(loop_kind):
    async def flood_with_slow_ones() -> None:
        loop, begun, gate = asyncio.get_running_loop(), [], asyncio.Event()

        async def slow(request: Request) -> Command:
            begun.append(request.opaque)
            await gate.wait()
            return request.reply()

        count = 3000
        async with serving({25: slow}) as (_, peer):
            await loop.sock_sendall(peer, b"".join(encode_command(Command(25, n)) for n in range(count)))
            while await settled(begun) or not begun:
                pass
            assert len(begun) == 1024
            gate.set()
            assert sorted(await received(loop, peer, count)) == list(range(count))

    run_on(loop_kind, flood_with_slow_ones())


@BOTH_LOOPS
def test_a_peer_that_leaves_too_much_unread_is_disconnected(loop_kind, caplog):
    async def answer_much_at_once() -> None:
        loop, asked = asyncio.get_running_loop(), []
        async with serving({11: asked.append}) as (server, peer):
            await loop.sock_sendall(peer, encode_command(Command(11, 1)))
            while not asked:
                await asyncio.sleep(0.001)
            (connection,) = server.connections
            for _ in range(400):  # as pulls that were held are answered
                connection.send(large(asked[0]))
                assert connection._transport.get_write_buffer_size() < 80 * 1024 * 1024
            while server.connections:
                await asyncio.sleep(0.001)

    run_on(loop_kind, answer_much_at_once())
    assert caplog.text.count("does not read its answers") == 1


async def test_a_large_frame_that_arrives_in_small_pieces_is_held_as_one():
    loop, asked = asyncio.get_running_loop(), []
    async with serving({11: lambda request: asked.append(request.body)}) as (server, peer):
        frame = encode_command(Command(11, 1, body=bytes(range(256)) * 2))
        for at in range(len(frame)):
            await loop.sock_sendall(peer, frame[at : at + 1])
            await asyncio.sleep(0)
            assert all(len(connection._chunks) <= 3 for connection in server.connections)
        while not asked:
            await asyncio.sleep(0.001)
        assert asked == [bytes(range(256)) * 2]


async def test_a_preamble_that_never_ends_is_not_waited_for(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr("twinlog.net.server._PREAMBLE_S_MAX", 0.02)
    loop = asyncio.get_running_loop()
    async with serving({}) as (_, peer):
        await loop.sock_sendall(peer, b"PROXY TCP4 192.0.2.1")
        with pytest.raises(ConnectionResetError):
            await loop.sock_recv(peer, 1)
    assert "no whole PROXY preamble" in caplog.text


async def test_connections_that_cannot_be_accepted_are_logged_once(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr("twinlog.net.server._ACCEPT_AGAIN_S", 0)
    loop, failures = asyncio.get_running_loop(), iter(range(5))
    accept = loop.sock_accept

    async def full(listener: socket.socket):
        if next(failures, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", full)
    async with serving({}) as (server, peer):
        await loop.sock_sendall(peer, encode_command(Command(11, 1)))
        while not server.connections:
            await asyncio.sleep(0.001)
    assert caplog.text.count("connections cannot be accepted") == 1 and "ulimit -n" in caplog.text
    assert "connections are accepted again" in caplog.text


@BOTH_LOOPS
def test_a_silent_peer_that_does_not_read_its_answers_is_disconnected_too(loop_kind):
    async def ask_and_fall_silent() -> None:
        loop = asyncio.get_running_loop()
        async with serving({11: large}, idle_ms_max=50) as (server, peer):
            await loop.sock_sendall(peer, b"".join(encode_command(Command(11, n)) for n in range(100)))
            while not server.connections:
                await asyncio.sleep(0.001)
            async with asyncio.timeout(5):
                while server.connections:
                    await asyncio.sleep(0.005)

    run_on(loop_kind, ask_and_fall_silent())


@BOTH_LOOPS
def test_thousands_of_requests_at_once_are_answered_though_neither_side_can_write(loop_kind):
    run_on(loop_kind, ask_at_once())


async def ask_at_once() -> None:
    """Both directions are full at some time: if both sides then stopped to read, neither would ever go on."""
    server = Server({11: lambda request: request.reply(body=request.body * 3)})
    await server.start("127.0.0.1", 0)
    connection = await connect(f"127.0.0.1:{server.port}", ConnectionOptions())
    own = connection._transport.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    try:
        bodies = [b"%06d" % n * 250 for n in range(4000)]
        asked = (connection.request(11, body=body, timeout_ms=10_000) for body in bodies)
        assert [answer.body for answer in await asyncio.gather(*asked)] == [body * 3 for body in bodies]
    finally:
        connection.abort()
        await server.stop()
