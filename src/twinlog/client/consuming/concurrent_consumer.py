"""Consumes messages of many queues at the same time, and sends failed ones back to their broker for a retry."""

import asyncio
from typing import Protocol

from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listener
from twinlog.client.consuming.process_queue import ProcessQueue
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.client.tasks import TaskSet
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message

log = get_logger(__name__)
_AGAIN_SECONDS = 5.0  # before a message is tried here again because its broker did not take it back


class MessageOrigin(Protocol):
    """The worker that pulled a message (see queue_worker.py)."""

    queue: MessageQueue
    process: ProcessQueue
    stopped: bool

    def finished(self, message: Message, generation: int) -> None: ...


class ConcurrentConsumer:
    """A fixed number of tasks that take messages in the order in which they were pulled."""

    def __init__(self, group: str, calls: QueueCalls, listener: Listener, options: ConsumerOptions) -> None:
        self._group, self._calls, self._listener, self._options = group, calls, listener, options
        self._pulled: asyncio.Queue[tuple[MessageOrigin, Message, int]] = asyncio.Queue()
        self._tasks = TaskSet()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        for i in range(self._options.concurrency):
            self._tasks.keep(self._consume, f"consume {i}")

    async def close(self, seconds_max: float) -> None:
        """Let running listener calls finish; the messages still waiting are dropped, and never acknowledged."""
        while not self._pulled.empty():
            self._pulled.get_nowait()
        try:
            async with asyncio.timeout(seconds_max):
                await self._idle.wait()
        except TimeoutError:
            log.warning("listeners are still at work; their messages will come again", busy=self._busy)
        await self._tasks.close()

    def put(self, origin: MessageOrigin, message: Message) -> None:
        self._pulled.put_nowait((origin, message, origin.process.generation))

    async def _consume(self) -> None:
        while True:
            origin, message, generation = await self._pulled.get()
            self._busy += 1
            self._idle.clear()
            try:
                await self._consume_one(origin, message, generation)
            except Exception:
                self._again_later(origin, message, generation)  # else its queue's progress would stop here
                raise
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def _consume_one(self, origin: MessageOrigin, message: Message, generation: int) -> None:
        if origin.stopped or generation != origin.process.generation:
            return  # the queue's new reader gets it
        result = await self._listener.call(message)
        if not result.ok and not await self._is_handed_over(origin.queue, message, result.delay_level):
            self._again_later(origin, message, generation)
            return
        origin.finished(message, generation)

    async def _is_handed_over(self, queue: MessageQueue, message: Message, delay_level: int) -> bool:
        """Send a failed message back; whether this consumer is done with it."""
        if self._options.broadcasting:
            log.warning("a broadcast message failed; there is no retry", id=message.message_id)
            return True
        try:
            await self._calls.send_back(self._group, queue, message, delay_level, self._options.retries_max)
        except REQUEST_FAILURES as error:
            log.warning("a message was not taken back; it is tried here again", id=message.message_id, error=str(error))
            return False
        return True

    def _again_later(self, origin: MessageOrigin, message: Message, generation: int) -> None:
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._put_again, origin, message, generation)

    def _put_again(self, origin: MessageOrigin, message: Message, generation: int) -> None:
        message.reconsume_times += 1
        self._pulled.put_nowait((origin, message, generation))
