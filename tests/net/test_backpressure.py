"""A peer that asks for much and reads nothing costs little memory, and gets everything once it reads."""

from __future__ import annotations

import asyncio
import socket

import pytest

from twinlog.net.connection import Request
from twinlog.net.server import Server
from twinlog.wire.command import Command, encode_command
from twinlog.wire.frame import encode_prefix, take_frame

ANSWER_BYTES = 256 * 1024
REQUESTS = 300


def large(request: Request) -> list:
    header = b'{"code":0,"flag":1,"language":"JAVA","opaque":%d,"version":479}' % request.opaque
    return [encode_prefix(len(header), ANSWER_BYTES), header, memoryview(bytes(ANSWER_BYTES))]


@pytest.mark.parametrize("loop_kind", ["asyncio", "uvloop"])
def test_answers_wait_for_a_peer_that_does_not_read(loop_kind):
    factory = None if loop_kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(flood())


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


async def received(loop: asyncio.AbstractEventLoop, peer: socket.socket) -> list[int]:
    buffer, opaques = bytearray(), []
    while len(opaques) < REQUESTS:
        buffer += await loop.sock_recv(peer, 1 << 20)
        while frame := take_frame(buffer):
            opaques.append(int(frame.header.split(b'"opaque":')[1].split(b",")[0]))
    return opaques
