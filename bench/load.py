"""The load generator: one process, plain sockets, frames made beforehand.

python -m bench.load shape     HOST:PORT TOPIC --shape main --seconds 5     (tls:HOST:PORT connects with TLS)
python -m bench.load pipelined HOST:PORT TOPIC --seconds 5 --body 128
python -m bench.load single    HOST:PORT TOPIC --seconds 5 --body 128
python -m bench.load pull      HOST:PORT TOPIC --seconds 5 --messages 100000

Prints one JSON object. Answers are counted by their length fields and checked for success; a shape's messages are then
looked for in the store.
"""

from __future__ import annotations

import argparse
import json
import select
import time

from bench.connections import OK, LoadFailed, ask, connect, create_topics
from bench.frames import pull_frame, send_frames
from bench.lanes import Lane, drive, send_shape
from bench.shapes import QUEUES, SHAPES, topics_of

PULL_COUNT = 32


def pipelined(address: str, topic: str, *, seconds: float, body_bytes: int, connections: int = 4, window: int = 64):
    """Messages per second with `connections` x `window` sends on their way at any time, one queue per connection."""
    body = bytes(i % 251 for i in range(body_bytes))
    lanes = [
        Lane(address, send_frames(topic, number % QUEUES, body, connection=number), window)
        for number in range(connections)
    ]
    count, taken = drive(lanes, seconds)
    for lane in lanes:
        lane.socket.close()
    return {"per_second": count / taken, "count": count}


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
            if OK not in answer:
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
            if OK not in answer[:24]:
                raise LoadFailed(f"an answer is not code 0: {answer[8:400]!r}")
            pulled += 1
            received += len(answer)
    return {"per_second": pulled * PULL_COUNT / (now - started), "pulls": pulled, "bytes": received}


def fill(address: str, topic: str, *, messages: int, body_bytes: int) -> None:
    """Put at least `messages` into queue 0."""
    lane = Lane(address, send_frames(topic, 0, bytes(body_bytes), connection=7), 64)
    while lane.answered < messages:
        select.select([lane.socket], [], [], 10)
        lane.send(lane.receive())
    lane.socket.close()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load")
    parser.add_argument("kind", choices=("shape", "pipelined", "single", "pull", "fill"))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--shape", choices=SHAPES, default="main")
    parser.add_argument("--created", action="store_true", help="the topics are there already")
    parser.add_argument("--fixed", action="store_true", help="a shape's frames are the same in every cycle")
    parser.add_argument("--account", metavar="NAME:SECRET", help="sign a shape's frames, which are fixed then")
    options = parser.parse_args(argv)
    address, topic, shape = options.address, options.topic, SHAPES[options.shape]
    if not options.created:
        create_topics(address, topics_of(shape, topic) if options.kind == "shape" else [topic], QUEUES)
    if options.kind == "shape":
        kept = {"fixed": options.fixed, "account": options.account}
        result = send_shape(address, topic, shape, seconds=options.seconds, **kept)
    elif options.kind == "pipelined":
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
