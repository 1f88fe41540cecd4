"""TLS on sockets that the loop watches without a transport: the HA port, where every byte is sent by hand.

A TLS socket that must wait raises WOULD_BLOCK. It holds back no bytes that were received, as long as more than a record
(16 KiB) is read at a time, so the loop's readiness callbacks work as on a plain socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

TLS_HANDSHAKE = 0x16  # the first byte; a report or a pass never begins with it
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


async def first_byte(connected: socket.socket) -> int | None:
    """The first byte that the peer has sent, which stays to be read; None when it closed the connection."""
    while True:
        await _until_ready(connected, write=False)
        with contextlib.suppress(BlockingIOError):
            start = connected.recv(1, socket.MSG_PEEK)
            return start[0] if start else None


async def secure(
    connected: socket.socket, context: ssl.SSLContext, *, server_side: bool = False, host: str | None = None
) -> ssl.SSLSocket:
    """`connected` with TLS; closes it and raises an OSError when the handshake fails."""
    wrapped = context.wrap_socket(
        connected, server_side=server_side, server_hostname=host, do_handshake_on_connect=False
    )
    try:
        while True:
            try:
                wrapped.do_handshake()
                return wrapped
            except ssl.SSLWantReadError:
                await _until_ready(wrapped, write=False)
            except ssl.SSLWantWriteError:
                await _until_ready(wrapped, write=True)
    except BaseException:
        wrapped.close()
        raise


async def _until_ready(connected: socket.socket, *, write: bool) -> None:
    loop, number = asyncio.get_running_loop(), connected.fileno()
    ready = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(number, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        remove(number)
