"""A question over a topic, and its answer."""

import asyncio
import os

from twinlog.client import Admin, Message, Outgoing, Producer, PushConsumer, reply_to

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def main() -> None:
    async with Admin(NAMES) as admin, Producer(NAMES, group="asker") as producer:
        await admin.create_topic("Questions", queues=1)

        async def answer(message: Message) -> None:
            await producer.send(reply_to(message, message.body.upper()))

        consumer = PushConsumer(NAMES, "answerers", answer)
        consumer.subscribe("Questions")
        async with consumer:
            reply = await producer.request(Outgoing("Questions", "how are you?"), timeout_ms=10_000)
            print(reply.body.decode())


if __name__ == "__main__":
    asyncio.run(main())
