"""Connections that are kept full with prepared frames, and the loads made of them.

Every message gets a unique key without encoding anything under the clock: when a lane begins with its first frame
again, it writes the next number over the digits that `shapes.CYCLE` reserves in all of its frames.
"""

from __future__ import annotations

import re
import select
import socket
import time

import numpy as np

from bench import shapes
from bench.connections import LoadFailed, cipher_of, connect, count_answers, queue_ends, receive
from bench.shapes import Shape

SILENCE_MAX = 10.0  # seconds without any progress


class Lane:
    """One connection with a fixed number of requests on their way."""

    def __init__(self, address: str, frames: list[bytes], window: int) -> None:
        self.socket = connect(address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.answered = 0
        self.sent = 0
        self._bytes = bytearray(b"".join(frames))
        self._view = memoryview(self._bytes)
        self._starts = [0]
        for frame in frames:
            self._starts.append(self._starts[-1] + len(frame))
        marks = [found.start() for found in re.finditer(shapes.CYCLE.encode(), self._bytes)]
        self._digits = np.array(marks, np.int64)[:, None] + np.arange(len(shapes.CYCLE))
        self._frames = len(frames)
        self._next = self._cycle = 0
        self._number_cycle()
        self._rest = b""
        self.send(window)

    def receive(self) -> int:
        """Count the answers that have arrived; call it when the socket is readable."""
        data = receive(self.socket)
        if not data:
            raise LoadFailed("the broker closed the connection")
        if self._rest:
            data = self._rest + data
        count, at = count_answers(data)
        self._rest = data[at:]
        self.answered += count
        return count

    def send(self, count: int) -> None:
        """The next `count` frames, in one write unless a cycle ends among them."""
        self.sent += count
        while count:
            now = min(count, self._frames - self._next)
            self.socket.sendall(self._view[self._starts[self._next] : self._starts[self._next + now]])
            self._next += now
            count -= now
            if self._next == self._frames:
                self._next = 0
                self._cycle += 1
                self._number_cycle()

    def _number_cycle(self) -> None:
        if len(self._digits):
            digits = np.frombuffer(b"%04d" % (self._cycle % 10_000), np.uint8)
            np.frombuffer(self._bytes, np.uint8)[self._digits] = digits


def drive(lanes: list[Lane], seconds: float) -> tuple[int, float]:
    """(answers, seconds) of lanes that are kept full; what is still on its way is then waited for, uncounted."""
    by_fd = {lane.socket.fileno(): lane for lane in lanes}
    with select.epoll() as poll:
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        started = time.perf_counter()
        deadline = started + seconds
        while (now := time.perf_counter()) < deadline:
            for fd, _ in poll.poll(1):
                lane = by_fd[fd]
                lane.send(lane.receive())
        count = sum(lane.answered for lane in lanes)
        while any(lane.answered < lane.sent for lane in lanes):
            ready = poll.poll(SILENCE_MAX)
            if not ready:
                raise LoadFailed(f"no answer in {SILENCE_MAX} s")
            for fd, _ in ready:
                by_fd[fd].receive()
    return count, now - started


def drive_oneway(
    lanes: list[Lane], seconds: float, control: socket.socket, queues: list[tuple[str, int]], window: int
) -> tuple[int, int, float]:
    """(sent, stored, seconds until the last of them was stored): nobody answers, so the queues' ends are asked for.

    At most `window` messages are on their way: a broker may drop what it has no room for. One queue tells for all
    while there is a lane to fill, since all queues are taken in turn.
    """
    first = queue_ends(control, queues)
    one = queues[:1]
    first_of_one = queue_ends(control, one)
    started = grown = time.perf_counter()
    deadline = started + seconds
    while (now := time.perf_counter()) < deadline:
        stored = (queue_ends(control, one) - first_of_one) * len(queues)
        room = (window - (sum(lane.sent for lane in lanes) - stored)) // len(lanes)
        if room < 64:
            time.sleep(0.0002)
            continue
        for lane in lanes:
            lane.send(room)
    sent, stored = sum(lane.sent for lane in lanes), -1
    while True:
        now, seen = time.perf_counter(), queue_ends(control, queues) - first
        if seen > stored:
            stored, grown = seen, now
        if stored >= sent or now - grown > SILENCE_MAX / 2:
            return sent, stored, grown - started
        time.sleep(0.001)


def send_shape(
    address: str,
    topic: str,
    shape: Shape,
    *,
    seconds: float,
    connections: int = 4,
    window: int = 64,
    fixed: bool = False,
    account: str | None = None,
):
    """Messages per second of one shape; each was seen to be stored before this returns.

    `fixed` sends the same frames again and again; `account`, a name and a secret with a colon between, signs them.
    """
    round_id = time.time_ns() // 1000
    queues = shapes.stored_queues(shape, topic)
    connections, window = (1, 1) if shape.single else (connections, window)
    with connect(address) as control:
        before = queue_ends(control, queues)
        first = 0 if shape.oneway else window
        made = [shapes.frames_of(shape, topic, lane=number, round_id=round_id) for number in range(connections)]
        if fixed or account is not None:
            made = [[shapes.fixed_frame(frame, account) for frame in frames] for frames in made]
        lanes = [Lane(address, frames, first) for frames in made]
        cpu = time.process_time()
        if shape.oneway:
            sent, count, taken = drive_oneway(lanes, seconds, control, queues, connections * window * 16)
            lost = sent - count
        else:
            requests, taken = drive(lanes, seconds)
            count, sent, lost = requests * shape.batch, sum(lane.sent for lane in lanes) * shape.batch, 0
            wait_stored(control, queues, before + sent)
        cpu = time.process_time() - cpu
    cipher = cipher_of(lanes[0].socket)
    for lane in lanes:
        lane.socket.close()
    return {
        "per_second": count / taken,
        "count": count,
        "sent": sent,
        "lost": lost,
        "load_cpu": cpu / taken,
        "cipher": cipher,
    }


def fill_shape(address: str, topic: str, shape: Shape, messages: int) -> None:
    """Exactly `messages` of this shape, stored."""
    queues = shapes.stored_queues(shape, topic)
    with connect(address) as control:
        before = queue_ends(control, queues)
        window = min(256, messages)
        lane = Lane(address, shapes.frames_of(shape, topic, lane=0, round_id=time.time_ns() // 1000), window)
        while lane.answered < messages:
            count = lane.receive()
            lane.send(min(count, messages - lane.sent))
        lane.socket.close()
        wait_stored(control, queues, before + messages)


def wait_stored(control: socket.socket, queues: list[tuple[str, int]], wanted: int) -> None:
    """Return once the queues hold exactly so many messages; Java's follow its log a moment later."""
    ends = wait_at_least(control, queues, wanted)
    if ends != wanted:
        raise LoadFailed(f"{wanted} messages should be stored, the queues end at {ends}")


def wait_at_least(control: socket.socket, queues: list[tuple[str, int]], wanted: int) -> int:
    """The number of messages in the queues, once it is at least `wanted`."""
    deadline = time.perf_counter() + SILENCE_MAX
    while (ends := queue_ends(control, queues)) < wanted:
        if time.perf_counter() > deadline:
            raise LoadFailed(f"{wanted} messages should be stored, the queues end at {ends}")
        time.sleep(0.005)
    return ends
