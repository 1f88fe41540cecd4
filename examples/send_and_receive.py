"""A producer, and a consumer that gets every message."""

import asyncio
import os

from twinlog.client import ConsumerOptions, Message, Outgoing, Producer, PushConsumer, StartFrom

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def main() -> None:
    left = 3
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        nonlocal left
        print(f"got {message.body.decode()} (tag {message.tags}, queue {message.queue_id})")
        left -= 1
        if left == 0:
            done.set()

    async with Producer(NAMES, group="shop") as producer:
        for drink in ("tea", "coffee", "water"):
            sent = await producer.send(Outgoing("Drinks", drink, tags="order"))
            print(f"sent {drink} to queue {sent.queue.queue_id}, offset {sent.queue_offset}")

    consumer = PushConsumer(NAMES, "kitchen", handle, consumer_options=ConsumerOptions(start_from=StartFrom.FIRST))
    consumer.subscribe("Drinks", "order")
    async with consumer:
        await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
