"""One kind of work with Twinlog's own client, as a process of its own; `cpp_load.py` does the same with the C++ client.

python bench/client_load.py one  NAMESRV TOPIC --seconds 5    sends one after another
python bench/client_load.py many NAMESRV TOPIC                64 at a time
python bench/client_load.py sync NAMESRV TOPIC                the blocking facade, one after another
python bench/client_load.py push NAMESRV TOPIC --messages N   a push consumer reads N messages that are there

Prints one JSON object: messages a second, and the CPU seconds of this process for each message.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import threading
import time

from twinlog.client import ConsumerOptions, Outgoing, Producer, ProducerOptions, PushConsumer, StartFrom, sync

BODY = bytes(i % 251 for i in range(128))


def message(topic: str, number: int) -> Outgoing:
    """What a program sends: a tag, a key of its own, a property."""
    return Outgoing(topic, BODY, tags="TagA", keys=f"key-{number}", properties={"color": "red"})


async def send_at_once(names: str, topic: str, seconds: float, at_once: int, *, auto_batch: bool = False) -> dict:
    """`at_once` tasks, each of which sends one message after another."""
    numbers = itertools.count()
    options = ProducerOptions(send_timeout_ms=20_000, **({"auto_batch": True} if auto_batch else {}))
    async with Producer(names, "P_bench", producer_options=options) as producer:

        async def send_until(deadline: float) -> int:
            sent = 0
            while time.perf_counter() < deadline:
                await producer.send(message(topic, next(numbers)))
                sent += 1
            return sent

        async def run(duration: float) -> int:
            deadline = time.perf_counter() + duration
            return sum(await asyncio.gather(*(send_until(deadline) for _ in range(at_once))))

        await run(min(1.0, seconds / 4))
        started, cpu = time.perf_counter(), time.process_time()
        count = await run(seconds)
        return rate(count, started, cpu)


def send_blocking(names: str, topic: str, seconds: float) -> dict:
    options = ProducerOptions(send_timeout_ms=20_000)
    with sync.Producer(names, "P_bench", producer_options=options) as producer:

        def run(duration: float) -> int:
            deadline, sent = time.perf_counter() + duration, 0
            while time.perf_counter() < deadline:
                producer.send(message(topic, sent))
                sent += 1
            return sent

        run(min(1.0, seconds / 4))
        started, cpu = time.perf_counter(), time.process_time()
        return rate(run(seconds), started, cpu)


async def consume(names: str, topic: str, group: str, messages: int) -> dict:
    """A group that is new reads `messages` from the beginning with a coroutine function."""
    began: list[float] = []
    ended = asyncio.Event()
    left = messages

    async def listen(_) -> None:
        nonlocal left
        if not began:
            began[:] = (time.perf_counter(), time.process_time())
        left -= 1
        if not left:
            ended.set()

    options = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = PushConsumer(names, group, listen, consumer_options=options)
    consumer.subscribe(topic)
    async with consumer:
        await ended.wait()
        return rate(messages, *began)


def consume_blocking(names: str, topic: str, group: str, messages: int) -> dict:
    """The same with a plain function in threads, as the C++ client and Java call one."""
    began: list[float] = []
    ended = threading.Event()
    numbers = itertools.count(1)

    def listen(_) -> None:
        if not began:
            began[:] = (time.perf_counter(), time.process_time())
        if next(numbers) == messages:
            ended.set()

    options = ConsumerOptions(start_from=StartFrom.FIRST)
    consumer = sync.PushConsumer(names, group, listen, consumer_options=options)
    consumer.subscribe(topic)
    with consumer:
        ended.wait()
        return rate(messages, *began)


def rate(count: int, started: float, cpu: float) -> dict:
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    return {"per_second": count / seconds, "count": count, "cpu_us": used / max(1, count) * 1e6}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench/client_load.py")
    parser.add_argument("kind", choices=("one", "many", "auto-batch", "sync", "push", "push-plain"))
    parser.add_argument("names")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--group", default="G_bench")
    given = parser.parse_args(argv)
    kind, names, topic = given.kind, given.names, given.topic
    if kind == "sync":
        result = send_blocking(names, topic, given.seconds)
    elif kind == "push":
        result = asyncio.run(consume(names, topic, given.group, given.messages))
    elif kind == "push-plain":
        result = consume_blocking(names, topic, given.group, given.messages)
    else:
        at_once = {"one": 1, "many": 64, "auto-batch": 1024}[kind]
        work = send_at_once(names, topic, given.seconds, at_once, auto_batch=kind == "auto-batch")
        result = asyncio.run(work)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
