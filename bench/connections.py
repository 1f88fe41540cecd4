"""A load generator's connections: one request and its answer at a time, and what an answer says."""

from __future__ import annotations

import socket
import ssl
import struct
import time

from bench.frames import max_offset_frame, topic_frame
from twinlog.wire.command import Command, decode_command, encode_command
from twinlog.wire.frame import take_frame

# The begin of an answer: length, header type, and the code if the header is binary.
ANSWER_BEGIN = struct.Struct(">iB3xh")
OK = b'"code":0,'
TLS = "tls:"  # before an address
TLS_CIPHERS = "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256"  # the same for every broker
_LENGTH = struct.Struct(">i")
_PIPELINED_MAX = 200


class LoadFailed(Exception):
    """The broker answered something else, or went away."""


def connect(address: str) -> socket.socket:
    """A connection to `host:port`, or over TLS to `tls:host:port`; certificates are not checked."""
    host, port = address.removeprefix(TLS).rsplit(":", 1)
    connected = socket.create_connection((host, int(port)), timeout=10)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.startswith(TLS):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        # Of TLS 1.3, whose ciphers this Python cannot choose, Java takes one with a shorter key than OpenSSL.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(TLS_CIPHERS)
        connected = context.wrap_socket(connected)
    connected.settimeout(None)
    return connected


def cipher_of(connected: socket.socket) -> str:
    """What a connection is encrypted with; "" in clear text."""
    agreed = connected.cipher() if isinstance(connected, ssl.SSLSocket) else None
    return f"{agreed[0]} ({agreed[1]})" if agreed else ""


def receive(connected: socket.socket) -> bytes:
    """What has arrived; over TLS also what was read from the network and not yet asked for, which no poll reports."""
    data = connected.recv(1 << 20)
    if isinstance(connected, ssl.SSLSocket) and connected.pending():
        parts = [data]
        while connected.pending():
            parts.append(connected.recv(1 << 20))
        return b"".join(parts)
    return data


def ask(connected: socket.socket, frame: bytes) -> bytes:
    """One request, and its whole answer frame."""
    connected.sendall(frame)
    return read_frame(connected)


def read_frame(connected: socket.socket) -> bytes:
    data = connected.recv(262144)
    while data:
        if len(data) >= 4 and len(data) >= (size := 4 + _LENGTH.unpack_from(data)[0]):
            return data[:size]
        more = connected.recv(262144)
        if not more:
            break
        data += more
    raise LoadFailed("the broker closed the connection")


def count_answers(data: bytes) -> tuple[int, int]:
    """(whole answers in `data`, where the last of them ends); LoadFailed if one is not a success.

    A broker may answer a binary request with a JSON header, as Java's does: each answer says its own type.
    """
    at, end, count, binary = 0, len(data), 0, 0
    unpack = ANSWER_BEGIN.unpack_from
    while end - at >= 10:
        length, header_type, code = unpack(data, at)
        after = at + 4 + length
        if after > end:
            break
        if header_type:
            binary += 1
            if code:
                raise LoadFailed(f"an answer has code {code}: {data[at + 8 : at + 400]!r}")
        at = after
        count += 1
    if data.count(OK, 0, at) != count - binary:
        raise LoadFailed(f"an answer is not code 0: {_first_bad(data, at)!r}")
    return count, at


def _first_bad(data: bytes, end: int) -> bytes:
    at = 0
    while at < end:
        after = at + 4 + _LENGTH.unpack_from(data, at)[0]
        if not data[at + 4] and OK not in data[at:after]:
            return data[at + 8 : min(after, at + 400)]
        at = after
    return data[8:400]


def create_topics(address: str, topics: list[str], queues: int) -> None:
    with connect(address) as connected:
        for topic in topics:
            answer = ask(connected, topic_frame(topic, queues))
            if OK not in answer:
                raise LoadFailed(f"topic {topic} cannot be created: {answer[8:400]!r}")


def wait_route(name_server: str, topic: str, seconds_max: float = 60) -> None:
    """Return once the name server has a route to `topic`: before, a producer would create it on any broker."""
    frame = encode_command(Command(105, opaque=1, fields={"topic": topic}))
    deadline = time.monotonic() + seconds_max
    with connect(name_server) as connected:
        while OK not in ask(connected, frame):
            if time.monotonic() > deadline:
                raise LoadFailed(f"no route to {topic} in {seconds_max} s")
            time.sleep(0.05)


def queue_ends(connected: socket.socket, queues: list[tuple[str, int]]) -> int:
    """The sum of the queues' ends: how many messages they took so far."""
    total = 0
    for first in range(0, len(queues), _PIPELINED_MAX):
        asked = queues[first : first + _PIPELINED_MAX]
        connected.sendall(b"".join(max_offset_frame(*queue) for queue in asked))
        buffer = bytearray()
        for _ in asked:
            while (frame := take_frame(buffer)) is None:
                more = connected.recv(262144)
                if not more:
                    raise LoadFailed("the broker closed the connection")
                buffer += more
            answer = decode_command(frame)
            if answer.code:
                raise LoadFailed(f"the end of a queue is not known: code {answer.code}, {answer.remark}")
            total += int((answer.fields or {})["offset"])
    return total
