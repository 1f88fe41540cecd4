"""The load of the growth parts: one process, whose sockets are all in one epoll.

python -m bench.growth_load topics      HOST:PORT PID --topics 100000 --used 10     sends in turn over topics
python -m bench.growth_load connections HOST:PORT PID --idle 5000 --held 0          sends beside other connections
python -m bench.growth_load consumers   HOST:PORT PID --consumers 64                sends that are pulled at once

Prints one JSON object: messages per second, CPU of process PID per message, and its memory in the end. The clock starts
when every topic was sent to, every connection is open and every pull is held.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import struct
import time

from bench.connections import LoadFailed, ask, connect, create_topics, queue_ends
from bench.frames import pull_frame, send_frames
from bench.lanes import Lane
from bench.servers import cpu_seconds, rss_mb
from twinlog.wire.command import Command, encode_command

LANES, WINDOW = 4, 64
BODY = bytes(index % 251 for index in range(128))
SPARE_FILES = 200
LIVE, QUIET = "GrowthLive", "GrowthQuiet"  # a topic that is sent to, and one that pulls wait for in vain
QUIET_QUEUES = 8
HELD_MS = 600_000
KB_CONNECTIONS_MIN = 500  # of fewer, the memory does not show
_LENGTH = struct.Struct(">i")
_FRAMES_MIN = 2048  # per lane, so that keys differ


def topic_name(number: int) -> str:
    return f"Growth-{number:06d}"


def allow_files(count: int) -> None:
    """Raise this process's limit of open files to `count` and some more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))


class Sends:
    """Pipelined sends over four connections, each with its share of the queues, in turn."""

    def __init__(self, address: str, queues: list[tuple[str, int]]) -> None:
        self._lanes = []
        self.frames = 0
        for number in range(LANES):
            frames = _frames(queues[number::LANES] or queues, number)
            self.frames = max(self.frames, len(frames))
            self._lanes.append(Lane(address, frames, WINDOW))
        self._by_fd = {lane.socket.fileno(): lane for lane in self._lanes}
        self._poll = select.epoll()
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)

    @property
    def answered(self) -> int:
        return sum(lane.answered for lane in self._lanes)

    def run(self, *, seconds: float = 0.0, each: int = 0) -> tuple[int, float]:
        """Send for so long, or until every lane has that many answers: (messages, seconds)."""
        before, began = self.answered, time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds or any(lane.answered < each for lane in self._lanes):
            for fd, _ in self._poll.poll(1):
                lane = self._by_fd[fd]
                lane.send(lane.receive())
        return self.answered - before, taken


def _frames(queues: list[tuple[str, int]], connection: int) -> list[bytes]:
    """One send to each queue, and again until there are enough of them."""
    rounds = -(-_FRAMES_MIN // len(queues))
    frames = []
    for number, (topic, queue_id) in enumerate(queues * rounds):
        frames += send_frames(topic, queue_id, BODY, connection=connection, first=number, count=1)
    return frames


def timed(pid: int, sends: Sends, seconds: float) -> dict:
    """What the broker takes for the sends of the next seconds."""
    cpu = cpu_seconds(pid)
    count, taken = sends.run(seconds=seconds)
    used = cpu_seconds(pid) - cpu
    return {"count": count, "per_second": count / taken, "cpu_us": used / count * 1e6, "rss_mb": rss_mb(pid)}


def over_topics(address: str, pid: int, *, used: int, seconds: float) -> dict:
    """Sends in turn over the first `used` topics; `bench.growth` has created them."""
    sends = Sends(address, [(topic_name(number), 0) for number in range(used)])
    sends.run(each=sends.frames)
    return timed(pid, sends, seconds)


def beside_connections(address: str, pid: int, *, idle: int, held: int, seconds: float) -> dict:
    """Sends while other connections are idle, or have a pull that is held."""
    allow_files(idle + held)
    for topic, queues in ((LIVE, LANES), (QUIET, QUIET_QUEUES)):
        create_topics(address, [topic], queues)
    sends = Sends(address, [(LIVE, queue_id) for queue_id in range(LANES)])
    sends.run(each=sends.frames)
    before = rss_mb(pid)
    others = [connect(address) for _ in range(idle + held)]
    for number, connected in enumerate(others[:idle]):
        ask(connected, heartbeat_frame(number))
    for number, connected in enumerate(others[idle:]):
        connected.sendall(pull_frame(QUIET, number % QUIET_QUEUES, 0, 32, held_ms=HELD_MS))
    time.sleep(1)
    grown = rss_mb(pid) - before
    result = timed(pid, sends, seconds)
    for connected in others:
        connected.close()
    if idle >= KB_CONNECTIONS_MIN:
        result["kb_each"] = grown * 1024 / idle
    return result


class Puller:
    """A consumer with one pull on its way, which asks again from where the answer ended."""

    def __init__(self, address: str, queue_id: int, offset: int) -> None:
        self.socket, self.queue_id, self.offset, self.answers = connect(address), queue_id, offset, 0
        self._rest = b""
        self._ask()
        self.socket.setblocking(False)

    def receive(self) -> int:
        """How many messages have arrived."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise LoadFailed("the broker closed the connection")
        data = self._rest + data
        if len(data) < 4 or len(data) < 4 + _LENGTH.unpack_from(data)[0]:
            self._rest = data
            return 0
        self._rest = b""
        after = _number(data, b'"nextBeginOffset":"')
        count, self.offset, self.answers = after - self.offset, after, self.answers + 1
        self._ask()
        return count

    def _ask(self) -> None:
        self.socket.sendall(pull_frame(LIVE, self.queue_id, self.offset, 32, held_ms=HELD_MS))


def _number(data: bytes, name: bytes) -> int:
    at = data.index(name) + len(name)
    return int(data[at : data.index(b'"', at)])


def with_consumers(address: str, pid: int, *, consumers: int, rate: int, seconds: float) -> dict:
    """Messages at a steady rate over as many queues as there are consumers, each of which pulls its own."""
    create_topics(address, [LIVE], consumers)
    frames = _frames([(LIVE, queue_id) for queue_id in range(consumers)], 0)
    with connect(address) as control:
        offsets = [queue_ends(control, [(LIVE, queue_id)]) for queue_id in range(consumers)]
    pullers = [Puller(address, queue_id, offset) for queue_id, offset in enumerate(offsets)]
    by_fd = {puller.socket.fileno(): puller for puller in pullers}
    producer = connect(address)
    producer.setblocking(False)
    poll = select.epoll()
    for fd in (*by_fd, producer.fileno()):
        poll.register(fd, select.EPOLLIN)
    sent = delivered = counted_from = answers = 0
    cpu = began = 0.0
    start = time.perf_counter()
    while (now := time.perf_counter()) < start + seconds + 1:
        if not began and now > start + 1:
            cpu, began, counted_from, answers = cpu_seconds(pid), now, delivered, _answers(pullers)
        due = int((now - start) * rate)
        if due > sent:
            some = [frames[number % len(frames)] for number in range(sent, due)]
            _send_all(producer, b"".join(some))
            sent = due
        for fd, _ in poll.poll(0.001):
            if fd in by_fd:
                delivered += by_fd[fd].receive()
            else:
                producer.recv(1 << 20)
    used, taken, count = cpu_seconds(pid) - cpu, now - began, delivered - counted_from
    for connected in (producer, *(puller.socket for puller in pullers)):
        connected.close()
    return {
        "per_second": count / taken,
        "per_pull": count / max(1, _answers(pullers) - answers),
        "cpu_us": used / max(count, 1) * 1e6,
        "rss_mb": rss_mb(pid),
    }


def _answers(pullers: list[Puller]) -> int:
    return sum(puller.answers for puller in pullers)


def _send_all(connected: socket.socket, data: bytes) -> None:
    connected.setblocking(True)
    connected.sendall(data)
    connected.setblocking(False)


def heartbeat_frame(number: int) -> bytes:
    """What an idle producer sends every 30 s."""
    body = f'{{"clientID":"idle-{number}","consumerDataSet":[],"producerDataSet":[{{"groupName":"IDLE_PG"}}]}}'
    return encode_command(Command(34, number, fields={}, body=body.encode()))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth_load")
    parser.add_argument("kind", choices=("topics", "connections", "consumers"))
    parser.add_argument("address")
    parser.add_argument("pid", type=int)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--used", type=int, default=10)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--held", type=int, default=0)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--rate", type=int, default=10_000)
    given = parser.parse_args(argv)
    address, pid, seconds = given.address, given.pid, given.seconds
    if given.kind == "topics":
        result = over_topics(address, pid, used=given.used, seconds=seconds)
    elif given.kind == "connections":
        result = beside_connections(address, pid, idle=given.idle, held=given.held, seconds=seconds)
    else:
        result = with_consumers(address, pid, consumers=given.consumers, rate=given.rate, seconds=seconds)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
