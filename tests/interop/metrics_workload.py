"""One of everything that a broker counts: normal, ordered, delayed and timed messages, transactions, retries."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable

from tests.interop import patient
from tests.interop.python_client import until

from twinlog.client import ConsumerOptions, Message, Outcome, Outgoing, RetryLater, StartFrom

TOPIC, GROUP = "Metered", "metered"


async def use_everything(names: str, *, until_seen: Callable[[], Awaitable[None]]) -> None:
    """Send and consume, then call `until_seen` while the clients are still there."""
    got: list[Message] = []

    async def listen(message: Message) -> None:
        if message.body == b"bad":
            raise RetryLater(-1)
        got.append(message)

    first = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=200, hold_ms=1_000)
    async with patient.Admin(names) as admin:
        await admin.create_topic(TOPIC, queues=2)
    async with patient.Producer(names, group="meters") as producer:
        for number in range(5):
            await producer.send(Outgoing(TOPIC, f"normal {number}", keys=f"k{number}"))
        await producer.send(Outgoing(TOPIC, "ordered", sharding_key="s"))
        await producer.send(Outgoing(TOPIC, "x" * 5_000))
        await producer.send(Outgoing(TOPIC, "delayed", delay_level=1))
        await producer.send(Outgoing(TOPIC, "timed", delay_ms=1_500))
        await producer.send(Outgoing(TOPIC, "bad"))
        for outcome in (Outcome.COMMIT, Outcome.ROLLBACK):
            await producer.send_in_transaction(Outgoing(TOPIC, "in a transaction"), lambda _, one=outcome: one)
        consumer = patient.PushConsumer(names, GROUP, listen, consumer_options=first)
        consumer.subscribe(TOPIC)
        async with consumer:
            await until(lambda: len(got) >= 10)
            await asyncio.sleep(1.5)  # the last commit, and a pull that is held
            await until_seen()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()
