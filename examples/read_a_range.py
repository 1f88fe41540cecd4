"""Reading queues by offset and by time, without joining a group."""

import asyncio
import os
import time

from twinlog.client import Outgoing, Producer, PullConsumer

NAMES = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def main() -> None:
    an_hour_ago = int((time.time() - 3600) * 1000)
    async with Producer(NAMES, group="meter") as producer:
        for i in range(8):
            await producer.send(Outgoing("Readings", f"{20 + i} degrees"))
    async with PullConsumer(NAMES, "report", register=False) as reader:
        for queue in await reader.queues("Readings"):
            start, end = await reader.offset_at(queue, an_hour_ago), await reader.max_offset(queue)
            async for message in reader.messages(queue, start, end):
                print(f"queue {queue.queue_id}, offset {message.queue_offset}: {message.body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
