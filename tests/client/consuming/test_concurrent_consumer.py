"""What becomes of a message whose plain listener ends in an unusual way."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

from twinlog.client.consuming.concurrent_consumer import ConcurrentConsumer
from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listener
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message


class Origin:
    """A worker that notes what is consumed."""

    def __init__(self) -> None:
        self.queue, self.process, self.stopped = MessageQueue("T", "b", 0), SimpleNamespace(generation=0), False
        self.paused = False
        self.consumed: list[bytes] = []

    def finished(self, message: Message, generation: int) -> None:
        self.consumed.append(message.body)


class Calls:
    """Takes messages back."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def send_back(self, group, queue, message, delay_level, retries_max) -> None:
        await asyncio.sleep(0)
        self.taken.append(message.body)


async def consume(listen, count: int, origin: Origin, calls: Calls) -> None:
    """Give `count` messages to one thread, and wait until none is left."""
    options = ConsumerOptions(concurrency=1)
    consumer = ConcurrentConsumer("g", calls, Listener(listen, 1), options)  # type: ignore[arg-type]
    consumer.start()
    for n in range(count):
        consumer.put(origin, [Message(topic="T", body=b"%d" % n)])
    try:
        async with asyncio.timeout(10):
            while len(origin.consumed) < count:
                await asyncio.sleep(0.001)
    finally:
        await consumer.close(1)


def leave(message: Message) -> None:
    sys.exit("on purpose")


def cancel(message: Message) -> None:
    raise asyncio.CancelledError


def await_what_is_cancelled(message: Message):
    async def wait() -> None:
        raise asyncio.CancelledError

    return wait()


@pytest.mark.parametrize("listen", [leave, cancel, await_what_is_cancelled])
async def test_a_message_comes_again_and_the_thread_goes_on(listen):
    origin, calls = Origin(), Calls()
    await consume(listen, 3, origin, calls)
    assert sorted(calls.taken) == sorted(origin.consumed) == [b"0", b"1", b"2"]


async def test_close_waits_until_a_failed_message_is_taken_back():
    begun, gate = threading.Event(), threading.Event()

    def fail(message: Message) -> None:
        begun.set()
        gate.wait(20)
        raise ZeroDivisionError("on purpose")

    origin, calls = Origin(), Calls()
    consumer = ConcurrentConsumer("g", calls, Listener(fail, 1), ConsumerOptions(concurrency=1))  # type: ignore[arg-type]
    consumer.start()
    consumer.put(origin, [Message(topic="T", body=b"0")])
    assert await asyncio.to_thread(begun.wait, 20)
    closing = asyncio.ensure_future(consumer.close(10))
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert calls.taken == origin.consumed == [b"0"]
