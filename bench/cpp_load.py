"""The C++ client through its Python wrapper (the PyPI package `rocketmq`), at the work that client_load.py does.

PYTHONPATH=<the package> python bench/cpp_load.py one NAMESRV TOPIC --seconds 5

`many` is 64 threads that send and wait. The wrapper's send_async keeps a reference for each message that it never
drops, and looks through all of them for the next answer, so its rate falls with every message.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer

BODY = bytes(1 + i % 127 for i in range(128))  # the wrapper ends a body at its first zero


def message(topic: str, number: int) -> Message:
    made = Message(topic)
    made.set_keys(f"key-{number}")
    made.set_tags("TagA")
    made.set_property("color", "red")
    made.set_body(BODY)
    return made


def send(names: str, topic: str, seconds: float, threads: int) -> dict:
    producer = Producer("P_cpp", timeout=20_000)
    producer.set_namesrv_addr(names)
    producer.start()
    numbers = itertools.count()

    def run(duration: float) -> int:
        deadline = time.perf_counter() + duration
        counts: list[int] = []

        def work() -> None:
            sent = 0
            while time.perf_counter() < deadline:
                producer.send_sync(message(topic, next(numbers)))
                sent += 1
            counts.append(sent)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(counts)

    run(min(1.0, seconds / 4))
    started, cpu = time.perf_counter(), time.process_time()
    result = rate(run(seconds), started, cpu)
    producer.shutdown()
    return result


def consume(names: str, topic: str, group: str, messages: int) -> dict:
    began: list[float] = []
    ended = threading.Event()
    numbers = itertools.count(1)

    def listen(_) -> None:
        if not began:
            began[:] = (time.perf_counter(), time.process_time())
        if next(numbers) == messages:
            ended.set()

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(names)
    consumer.set_thread_count(20)  # as the others have
    consumer.subscribe(topic, listen)
    consumer.start()
    if not ended.wait(60):
        return {"per_second": 0, "count": next(numbers) - 1, "cpu_us": 0}
    result = rate(messages, *began)
    consumer.shutdown()
    return result


def rate(count: int, started: float, cpu: float) -> dict:
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    return {"per_second": count / seconds, "count": count, "cpu_us": used / max(1, count) * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/cpp_load.py")
    parser.add_argument("kind", choices=("one", "many", "push"))
    parser.add_argument("names")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--group", default="G_cpp")
    given = parser.parse_args()
    if given.kind == "push":
        result = consume(given.names, given.topic, given.group, given.messages)
    else:
        result = send(given.names, given.topic, given.seconds, 1 if given.kind == "one" else 64)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
