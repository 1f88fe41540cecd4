"""The load generator: one process, blocking or selecting sockets, frames made beforehand.

python -m bench.load pipelined HOST:PORT TOPIC --seconds 5 --body 128
python -m bench.load single    HOST:PORT TOPIC --seconds 5 --body 128
python -m bench.load pull      HOST:PORT TOPIC --seconds 5 --messages 100000

Prints one JSON object. Answers are counted by their length fields and checked for code 0 and nothing else.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import time

from bench.frames import pull_frame, send_frames, topic_frame

_LENGTH = struct.Struct(">i")
_OK = b'"code":0,'
PULL_COUNT = 32
QUEUES = 8


class LoadFailed(Exception):
    """The broker answered something else, or went away."""


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connected = socket.create_connection((host, int(port)), timeout=10)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.settimeout(None)
    return connected


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


def create_topic(address: str, topic: str) -> None:
    with connect(address) as connected:
        answer = ask(connected, topic_frame(topic, QUEUES))
    if _OK not in answer:
        raise LoadFailed(f"topic {topic} cannot be created: {answer[8:400]!r}")


class Lane:
    """One connection with a fixed number of requests on their way."""

    def __init__(self, address: str, frames: list[bytes], window: int) -> None:
        self.socket = connect(address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.answered = 0
        self._stream = memoryview(b"".join(frames + frames[:window]))
        self._starts = [0]
        for frame in frames + frames[:window]:
            self._starts.append(self._starts[-1] + len(frame))
        self._frames = len(frames)
        self._next = 0
        self._rest = b""
        self._send(window)
        self.socket.setblocking(False)

    def receive(self) -> int:
        """Count what has arrived and ask as often again."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise LoadFailed("the broker closed the connection")
        if self._rest:
            data = self._rest + data
        at, end, count = 0, len(data), 0
        unpack = _LENGTH.unpack_from
        while end - at >= 4 and (after := at + 4 + unpack(data, at)[0]) <= end:
            at = after
            count += 1
        if data.count(_OK, 0, at) != count:
            raise LoadFailed(f"an answer is not code 0: {data[8:400]!r}")
        self._rest = data[at:]
        if count:
            self.socket.setblocking(True)
            self._send(count)
            self.socket.setblocking(False)
        self.answered += count
        return count

    def _send(self, count: int) -> None:
        start = self._next
        self.socket.sendall(self._stream[self._starts[start] : self._starts[start + count]])
        self._next = (start + count) % self._frames


def pipelined(address: str, topic: str, *, seconds: float, body_bytes: int, connections: int = 4, window: int = 64):
    """Messages per second with `connections` x `window` sends on their way at any time."""
    body = bytes(i % 251 for i in range(body_bytes))
    lanes = [
        Lane(address, send_frames(topic, number % QUEUES, body, connection=number), window)
        for number in range(connections)
    ]
    by_fd = {lane.socket.fileno(): lane for lane in lanes}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    started = time.perf_counter()
    deadline = started + seconds
    while (now := time.perf_counter()) < deadline:
        for fd, _ in poll.poll(1):
            by_fd[fd].receive()
    count = sum(lane.answered for lane in lanes)
    for lane in lanes:
        lane.socket.close()
    return {"per_second": count / (now - started), "count": count}


def single(address: str, topic: str, *, seconds: float, body_bytes: int):
    """Messages per second on one connection with one send on its way, and its latencies."""
    frames = send_frames(topic, 0, bytes(body_bytes), connection=9)
    taken = []
    with connect(address) as connected:
        started = time.perf_counter()
        deadline, last = started + seconds, started
        while last < deadline:
            answer = ask(connected, frames[len(taken) % len(frames)])
            now = time.perf_counter()
            taken.append(now - last)
            last = now
            if _OK not in answer:
                raise LoadFailed(f"an answer is not code 0: {answer[8:400]!r}")
    taken_sorted = sorted(taken)
    return {
        "per_second": len(taken) / (last - started),
        "count": len(taken),
        "p50_us": taken_sorted[len(taken) // 2] * 1e6,
        "p99_us": taken_sorted[len(taken) * 99 // 100] * 1e6,
    }


def pull(address: str, topic: str, *, seconds: float, messages: int):
    """Messages per second that one consumer pulls, 32 at a time, from queue 0 over and over."""
    frames = [pull_frame(topic, 0, at, PULL_COUNT) for at in range(0, messages - PULL_COUNT, PULL_COUNT)]
    pulled = received = 0
    with connect(address) as connected:
        started = time.perf_counter()
        deadline = started + seconds
        while (now := time.perf_counter()) < deadline:
            answer = ask(connected, frames[pulled % len(frames)])
            if _OK not in answer[:24]:
                raise LoadFailed(f"an answer is not code 0: {answer[8:400]!r}")
            pulled += 1
            received += len(answer)
    return {"per_second": pulled * PULL_COUNT / (now - started), "pulls": pulled, "bytes": received}


def fill(address: str, topic: str, *, messages: int, body_bytes: int) -> None:
    """Put at least `messages` into queue 0."""
    lane = Lane(address, send_frames(topic, 0, bytes(body_bytes), connection=7), 64)
    lane.socket.setblocking(True)
    while lane.answered < messages:
        select.select([lane.socket], [], [], 10)
        lane.socket.setblocking(False)
        lane.receive()
    lane.socket.close()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load")
    parser.add_argument("kind", choices=("pipelined", "single", "pull", "fill"))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    options = parser.parse_args(argv)
    address, topic = options.address, options.topic
    create_topic(address, topic)
    if options.kind == "pipelined":
        result = pipelined(
            address,
            topic,
            seconds=options.seconds,
            body_bytes=options.body,
            connections=options.connections,
            window=options.window,
        )
    elif options.kind == "single":
        result = single(address, topic, seconds=options.seconds, body_bytes=options.body)
    elif options.kind == "pull":
        result = pull(address, topic, seconds=options.seconds, messages=options.messages)
    else:
        fill(address, topic, messages=options.messages, body_bytes=options.body)
        result = {"count": options.messages}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
