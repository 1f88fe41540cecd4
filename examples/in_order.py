"""Messages of one key in order: the sharding key picks the queue, an orderly consumer keeps its order."""

import asyncio
import os

from twinlog.client import ConsumerOptions, Message, Outgoing, Producer, PushConsumer, StartFrom

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
STEPS = ("ordered", "paid", "shipped")
CUSTOMERS = ("ann", "ben")


async def main() -> None:
    seen: dict[str, list[str]] = {name: [] for name in CUSTOMERS}
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        customer, step = message.body.decode().split()
        seen[customer].append(step)
        if all(len(steps) == len(STEPS) for steps in seen.values()):
            done.set()

    async with Producer(NAMES, group="shop") as producer:
        for step in STEPS:
            for customer in CUSTOMERS:
                await producer.send(Outgoing("Steps", f"{customer} {step}", sharding_key=customer))

    options = ConsumerOptions(orderly=True, start_from=StartFrom.FIRST)
    consumer = PushConsumer(NAMES, "tracker", handle, consumer_options=options)
    consumer.subscribe("Steps")
    async with consumer:
        await done.wait()
    for customer, steps in seen.items():
        print(customer, "->", ", ".join(steps))


if __name__ == "__main__":
    asyncio.run(main())
