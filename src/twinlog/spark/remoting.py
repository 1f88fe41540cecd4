"""A blocking connection to a broker or name server, with many requests in flight at once.

Executors are plain single-threaded processes: they write several requests at once and decode answers as they arrive.
Every wait has a time limit, since nothing else would end a request that hangs. Frames are parsed in place, and bodies
are views of the bytes received.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from twinlog.client.signing import sign
from twinlog.net.connecting import connecting_to, target_of
from twinlog.net.errors import ConnectionLost, RequestTimeout
from twinlog.spark.cluster_options import ClusterOptions, tls_of
from twinlog.wire.command import Command, decode_header, encode_command
from twinlog.wire.errors import WireError
from twinlog.wire.frame import JSON, frame_span

_RECEIVE_BYTES = 1 << 20
_FRAME_BYTES_MIN = 8
_count = itertools.count(1).__next__


@dataclass(slots=True)
class Response:
    """The answer of a server to request `opaque`."""

    opaque: int
    code: int
    remark: str
    fields: dict[str, str]
    body: memoryview


class _Header(msgspec.Struct, gc=False):
    code: int
    opaque: int
    remark: str | None = None
    extFields: dict[str, str] | None = None


_decode_fast = msgspec.json.Decoder(_Header).decode


class BlockingConnection:
    """One socket; requests are numbered, and answers may come in any order."""

    def __init__(self, address: str, options: ClusterOptions) -> None:
        self.address = address
        self._options = options
        self._chunks: list[bytes] = []
        self._have, self._need = 0, _FRAME_BYTES_MIN
        self._socket = _connect(address, options)

    def send(self, requests: Iterable[Command]) -> list[int]:
        """Write requests together; returns their numbers."""
        numbers, frames = [], []
        for request in requests:
            request.opaque = next_opaque()
            request.language = "PYTHON"
            if self._options.credentials is not None:
                sign(request, self._options.credentials)
            numbers.append(request.opaque)
            frames.append(encode_command(request))
        self.send_frames(b"".join(frames))
        return numbers

    def send_frames(self, data: bytes) -> None:
        """Write frames that are encoded already."""
        try:
            self._socket.settimeout(self._options.request_timeout_ms / 1000)
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(self.address, error) from error

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write a frame that is in several pieces, without joining them."""
        if isinstance(self._socket, ssl.SSLSocket):  # it writes one piece at a time
            self.send_frames(b"".join(parts))
            return
        left = [memoryview(part) for part in parts]
        deadline = time.monotonic() + self._options.request_timeout_ms / 1000
        try:
            while left:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                sent = self._socket.sendmsg(left)
                while left and sent >= len(left[0]):
                    sent -= len(left.pop(0))
                if left:
                    left[0] = left[0][sent:]
        except OSError as error:
            raise ConnectionLost(self.address, error) from error

    def receive(self, timeout_ms: int, asked_for: int = 0) -> list[Response]:
        """All answers that have arrived, at least one; RequestTimeout when none comes in time."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            if self._have >= self._need and (answers := self._take_answers()):
                return answers
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimeout(self.address, asked_for, timeout_ms)
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                raise RequestTimeout(self.address, asked_for, timeout_ms) from None
            except OSError as error:
                raise ConnectionLost(self.address, error) from error
            if not data:
                raise ConnectionLost(self.address, "closed by the server")
            self._chunks.append(data)
            self._have += len(data)

    def ask(self, requests: Iterable[Command], timeout_ms: int | None = None) -> list[Response]:
        """The answers to `requests`, in their order; all requests are sent together."""
        requests = list(requests)
        numbers = self.send(requests)
        found: dict[int, Response] = {}
        missing = set(numbers)
        while missing:
            for answer in self.receive(timeout_ms or self._options.request_timeout_ms, requests[0].code):
                found[answer.opaque] = answer
                missing.discard(answer.opaque)
        return [found[number] for number in numbers]

    def close(self) -> None:
        self._socket.close()

    def _take_answers(self) -> list[Response]:
        """The complete frames received; bytes after them stay until their frame is complete."""
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        view, at, end = memoryview(data), 0, len(data)
        answers: list[Response] = []
        try:
            while (span := frame_span(data, at, end)) is not None:
                header_type, header_end, frame_end = span
                answers.append(_answer(data[at + 8 : header_end], header_type, view[header_end:frame_end]))
                at = frame_end
        except WireError as error:
            raise ConnectionLost(self.address, f"it does not speak the RocketMQ protocol: {error}") from error
        rest = data[at:]
        self._chunks, self._have = [rest] if rest else [], len(rest)
        self._need = 4 + int.from_bytes(rest[:4], "big") if len(rest) >= 4 else _FRAME_BYTES_MIN
        return answers


def _answer(header: bytes, header_type: int, body: memoryview) -> Response:
    if header_type == JSON:
        try:
            one = _decode_fast(header)
            return Response(one.opaque, one.code, one.remark or "", one.extFields or {}, body)
        except msgspec.DecodeError:
            pass  # a form that only the full decoder reads
    command = decode_header(header, header_type)
    return Response(command.opaque, command.code, command.remark or "", command.fields or {}, body)


def next_opaque() -> int:
    """A request number; repeats after 2^31 requests."""
    return _count() & 0x7FFFFFFF


def _connect(address: str, options: ClusterOptions) -> socket.socket:
    target = target_of(address)
    context = tls_of(options)
    with connecting_to(address), contextlib.ExitStack() as stack:
        plain = socket.create_connection((target.host, target.port), options.connect_timeout_ms / 1000)
        stack.callback(plain.close)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected = plain if context is None else context.wrap_socket(plain, server_hostname=target.host)
        stack.pop_all()
    return connected


_connections: dict[tuple[str, ClusterOptions], BlockingConnection] = {}


def connection_to(address: str, options: ClusterOptions) -> BlockingConnection:
    """The connection that this process keeps to `address`: a worker runs many tasks one after another."""
    found = _connections.get((address, options))
    if found is None:
        found = _connections[address, options] = BlockingConnection(address, options)
    return found


def forget_connection(address: str, options: ClusterOptions) -> None:
    """Close a connection that failed, or that has unread answers."""
    found = _connections.pop((address, options), None)
    if found is not None:
        found.close()
