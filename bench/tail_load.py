"""A calm producer and what goes on beside it, each as a process of its own.

python -m bench.tail_load calm    HOST:PORT TOPIC --seconds 5 --body 128     1,000 sends/s; latencies in ms
python -m bench.tail_load readers HOST:PORT TOPIC --seconds 5 --messages N   four consumers, of a topic each
python -m bench.tail_load topics  HOST:PORT NAME  --seconds 5                2,000 new topics, spread over the time
python -m bench.tail_load queries HOST:PORT TOPIC --seconds 5                messages by key, one after the other
python -m bench.tail_load cold    HOST:PORT TOPIC --messages N --body 4096   what the readers read, N messages for each
python -m bench.tail_load fill    HOST:PORT TOPIC --messages N --body 4096   N messages to the queues in turn
python -m bench.tail_load approach HOST:PORT TOPIC --segment N               fill the last segment but for 1 MiB

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import select
import socket
import struct
import threading
import time

from bench.connections import OK, LoadFailed, ask, connect, create_topics
from bench.frames import FRAMES_PER_CONNECTION, pull_frame, send_frames, topic_frame
from bench.lanes import Lane
from bench.shapes import QUEUES
from twinlog.wire.command import Command, encode_command

RATE = 1_000
READERS = 4
PULL_COUNT = 32
NEW_TOPICS = 2_000
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_MESSAGE_ID = re.compile(rb'"msgId":"[0-9A-F]*([0-9A-F]{16})"')
_LENGTH = struct.Struct(">i")


def queues_in_turn(topic: str, body: bytes, *, connection: int) -> list[bytes]:
    """Sends to all queues in turn; the opaque of each is its place in the list."""
    count = FRAMES_PER_CONNECTION if len(body) < 1 << 14 else 128
    by_queue = [send_frames(topic, queue, body, connection=connection, count=count) for queue in range(QUEUES)]
    return [by_queue[number % QUEUES][number] for number in range(len(by_queue[0]))]


def calm(address: str, topic: str, *, seconds: float, body_bytes: int) -> dict:
    """`RATE` sends a second, whether or not the earlier ones are answered; latencies from the intended time on."""
    frames = queues_in_turn(topic, bytes(body_bytes), connection=3)
    total, sent, taken, rest = int(seconds * RATE), 0, [], b""
    with connect(address) as connected:
        connected.setblocking(False)
        started = time.perf_counter() + 0.05
        intended = [started + number / RATE for number in range(total)]
        while len(taken) < total:
            now = time.perf_counter()
            while sent < total and intended[sent] <= now:
                connected.send(frames[sent % len(frames)])  # a frame always fits: few are on their way
                sent += 1
            wait = max(0.0, intended[sent] - time.perf_counter()) if sent < total else 10.0
            if not select.select([connected], [], [], wait)[0]:
                if sent == total:
                    raise LoadFailed(f"{total - len(taken)} sends were not answered")
                continue
            data, now = rest + connected.recv(1 << 20), time.perf_counter()
            at = 0
            while len(data) - at >= 4 and (after := at + 4 + _LENGTH.unpack_from(data, at)[0]) <= len(data):
                found = _OPAQUE.search(data, at, after)
                if found is None or data.find(OK, at, after) < 0:
                    raise LoadFailed(f"an answer is not code 0: {data[at : at + 400]!r}")
                # The newest send with this opaque: a list has 2,048 frames, two seconds of them.
                number = int(found[1])
                number += (sent - 1 - number) // len(frames) * len(frames)
                taken.append(now - intended[number])
                at = after
            rest = data[at:]
    taken.sort()

    def percentile(share: float) -> float:
        return taken[min(total - 1, int(total * share))] * 1e3

    return {
        "p50": percentile(0.5),
        "p99": percentile(0.99),
        "p99.9": percentile(0.999),
        "max": taken[-1] * 1e3,
        "count": total,
    }


def readers(address: str, topic: str, *, seconds: float, messages: int) -> dict:
    """Four consumers, each with a part of the log for itself, which it reads once, spread over the time.

    As fast as it goes, a fast broker would have no cold data left before the time is up, and a calm end of it.
    """
    per_reader = messages // PULL_COUNT
    read_bytes, pulls = [0] * READERS, [0] * READERS

    def read(number: int) -> None:
        with connect(address) as connected:
            started = time.perf_counter()
            for done in range(per_reader):
                pause = started + seconds * done / per_reader - time.perf_counter()
                if pause > 0:
                    time.sleep(pause)
                elif time.perf_counter() - started > seconds:
                    break
                answer = ask(connected, pull_frame(f"{topic}-{number}", 0, done * PULL_COUNT, PULL_COUNT))
                if OK not in answer[:24]:
                    raise LoadFailed(f"an answer is not code 0: {answer[8:400]!r}")
                read_bytes[number] += len(answer)
                pulls[number] += 1

    started = time.perf_counter()
    threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - started
    if min(pulls) == 0:
        raise LoadFailed("a reader has read nothing")
    return {"pulls": sum(pulls), "mb_per_second": sum(read_bytes) / taken / 1e6, "seconds": taken}


def new_topics(address: str, name: str, *, seconds: float) -> dict:
    """2,000 topics, one after the other, spread over the time."""
    started = time.perf_counter()
    with connect(address) as connected:
        for number in range(NEW_TOPICS):
            pause = started + seconds * number / NEW_TOPICS - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            answer = ask(connected, topic_frame(f"{name}-{number}", QUEUES))
            if OK not in answer:
                raise LoadFailed(f"a topic cannot be created: {answer[8:400]!r}")
    return {"topics": NEW_TOPICS, "seconds": time.perf_counter() - started}


def queries(address: str, topic: str, *, seconds: float) -> dict:
    """Messages by unique key, one query after the other, from many places of the topic."""
    frames = []
    for number in range(0, 2048, 7):
        unique = f"7F000001{5:04X}1B2C3D4E{number:08X}{number & 0xFFFF:04X}"
        fields = {
            "topic": topic,
            "key": unique,
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str((1 << 63) - 1),
        }
        frames.append(encode_command(Command(12, opaque=number, fields=fields)))
    count, started = 0, time.perf_counter()
    with connect(address) as connected:
        while time.perf_counter() - started < seconds:
            answer = ask(connected, frames[count % len(frames)])
            if OK not in answer[:24]:
                raise LoadFailed(f"a key is not found: {answer[8:400]!r}")
            count += 1
    return {"queries": count, "per_second": count / (time.perf_counter() - started)}


def cold(address: str, topic: str, *, messages: int, body_bytes: int) -> dict:
    """A topic for each reader, one behind the other in the log, all in queue 0."""
    names = [f"{topic}-{number}" for number in range(READERS)]
    create_topics(address, names, QUEUES)
    for name in names:
        _send_all(Lane(address, send_frames(name, 0, bytes(body_bytes), connection=5), 64), messages)
    return {"count": READERS * messages}


def fill(address: str, topic: str, *, messages: int, body_bytes: int) -> dict:
    """At least `messages`, to all queues in turn."""
    return {"count": _send_all(Lane(address, queues_in_turn(topic, bytes(body_bytes), connection=5), 64), messages)}


def _send_all(lane: Lane, messages: int) -> int:
    while lane.answered < messages:
        select.select([lane.socket], [], [], 10)
        lane.send(lane.receive())
    lane.socket.close()
    return lane.answered


def approach(address: str, topic: str, *, segment_bytes: int) -> dict:
    """Send until less than 1 MiB of the log's last segment is free."""
    sends = {size: send_frames(topic, 0, bytes(size), connection=6, count=1)[0] for size in (1 << 20, 1 << 14)}
    with connect(address) as connected:
        while (left := segment_bytes - _log_offset(connected, sends[1 << 14]) % segment_bytes) > 1 << 20:
            for _ in range((left - (1 << 20)) // (1 << 20)):
                ask(connected, sends[1 << 20])
    return {"left": left}


def _log_offset(connected: socket.socket, frame: bytes) -> int:
    """Where in the log the message of this send is stored: its id has the place."""
    answer = ask(connected, frame)
    found = _MESSAGE_ID.search(answer)
    if found is None:
        raise LoadFailed(f"a send is not answered with a message id: {answer[8:400]!r}")
    return int(found[1], 16)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tail_load")
    parser.add_argument("kind", choices=("calm", "readers", "topics", "queries", "cold", "fill", "approach"))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--segment", type=int, default=1 << 30)
    given = parser.parse_args(argv)
    place = given.address, given.topic
    if given.kind not in ("topics", "readers", "cold"):
        create_topics(given.address, [given.topic], QUEUES)
    if given.kind == "calm":
        result = calm(*place, seconds=given.seconds, body_bytes=given.body)
    elif given.kind == "readers":
        result = readers(*place, seconds=given.seconds, messages=given.messages)
    elif given.kind == "topics":
        result = new_topics(*place, seconds=given.seconds)
    elif given.kind == "queries":
        result = queries(*place, seconds=given.seconds)
    elif given.kind == "cold":
        result = cold(*place, messages=given.messages, body_bytes=given.body)
    elif given.kind == "fill":
        result = fill(*place, messages=given.messages, body_bytes=given.body)
    else:
        result = approach(*place, segment_bytes=given.segment)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
