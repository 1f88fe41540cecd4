"""Consumes messages of many queues at the same time, and sends failed ones back to their broker for a retry."""

import asyncio
from typing import Protocol

from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listener, ListenerResult, ListenerReturn
from twinlog.client.consuming.listener_threads import ListenerThreads
from twinlog.client.consuming.process_queue import ProcessQueue
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.client.tasks import TaskSet
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message

log = get_logger(__name__)
_YIELD_EVERY = 64  # messages that one task consumes before it lets others run, even if the listener never waits
_AGAIN_SECONDS = 5.0  # before a message is tried here again because its broker did not take it back


class MessageOrigin(Protocol):
    """The worker that pulled a message (see queue_worker.py)."""

    queue: MessageQueue
    process: ProcessQueue
    stopped: bool
    paused: bool

    def finished(self, message: Message, generation: int) -> None: ...
    def hold(self, messages: list[Message], generation: int) -> None: ...


_Pulled = tuple[MessageOrigin, list[Message], int]  # with the generation of the origin's queue


class ConcurrentConsumer:
    """Calls the listener for messages in the order in which they were pulled, a fixed number of them at a time.

    A fixed number of tasks await a coroutine function; a fixed number of threads call a plain one.
    """

    def __init__(self, group: str, calls: QueueCalls, listener: Listener, options: ConsumerOptions) -> None:
        self._group, self._calls, self._listener, self._options = group, calls, listener, options
        self._pulled: asyncio.Queue[_Pulled] = asyncio.Queue()
        self._threads: ListenerThreads[_Pulled, ListenerReturn | None] | None = None
        if listener.is_threaded:
            self._threads = ListenerThreads(options.concurrency, self._call_in_thread, self._called)
        self._tasks = TaskSet()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        if self._threads is not None:
            self._threads.start()
            return
        for i in range(self._options.concurrency):
            self._tasks.keep(self._consume, f"consume {i}")

    async def close(self, seconds_max: float) -> None:
        """Let running listener calls finish; the messages still waiting are dropped, and never acknowledged."""
        while not self._pulled.empty():
            self._pulled.get_nowait()
        try:
            async with asyncio.timeout(seconds_max):
                if self._threads is not None:
                    await self._threads.close()
                await self._idle.wait()
        except TimeoutError:
            busy = self._busy + (self._threads.open_items if self._threads is not None else 0)
            log.warning("listeners are still at work; their messages will come again", busy=busy)
        await self._tasks.close()

    def put(self, origin: MessageOrigin, messages: list[Message]) -> None:
        """Call the listener for `messages`, all at once."""
        self._put((origin, messages, origin.process.generation))

    def _put(self, pulled: _Pulled) -> None:
        if self._threads is not None:
            self._threads.put(pulled)
        else:
            self._pulled.put_nowait(pulled)

    # -- a coroutine function ------------------------------------------------------------------

    async def _consume(self) -> None:
        pulled = self._pulled
        count = 0
        while True:
            if pulled.empty():
                origin, messages, generation = await pulled.get()
            else:
                origin, messages, generation = pulled.get_nowait()
                count += 1
                if not count % _YIELD_EVERY:
                    await asyncio.sleep(0)
            self._entered()
            try:
                await self._consume_one(origin, messages, generation)
            except Exception:
                self._again_later(origin, messages, generation)  # else its queue's progress would stop here
                raise
            finally:
                self._left()

    async def _consume_one(self, origin: MessageOrigin, messages: list[Message], generation: int) -> None:
        if origin.stopped or generation != origin.process.generation:
            return  # the queue's new reader gets it
        if origin.paused:
            origin.hold(messages, generation)
            return
        result = await self._listener.call(messages)
        if result.ok:
            for message in messages:
                origin.finished(message, generation)
        else:
            await self._after_failure(origin, messages, generation, result)

    # -- a plain function ----------------------------------------------------------------------

    def _call_in_thread(self, pulled: _Pulled) -> ListenerReturn | None:
        origin, messages, generation = pulled
        if origin.stopped or origin.paused or generation != origin.process.generation:
            return None
        return self._listener.call_here(messages)

    def _called(self, pulled: _Pulled, back: ListenerReturn | None) -> None:
        origin, messages, generation = pulled
        if back is None:
            if not origin.stopped:
                origin.hold(messages, generation)
            return
        result = self._listener.settle(messages, back)
        if result is not None and result.ok:
            for message in messages:
                origin.finished(message, generation)
        else:
            self._entered()  # now, and not when the task begins: `close` waits for it
            self._tasks.start(self._settle(origin, messages, generation, back, result), "settle messages")

    async def _settle(
        self,
        origin: MessageOrigin,
        messages: list[Message],
        generation: int,
        back: ListenerReturn,
        result: ListenerResult | None,
    ) -> None:
        try:
            result = result or await self._listener.settle_later(messages, back)
            if not result.ok:
                await self._after_failure(origin, messages, generation, result)
                return
            for message in messages:
                origin.finished(message, generation)
        except Exception:
            self._again_later(origin, messages, generation)
            raise
        finally:
            self._left()

    # -- both ----------------------------------------------------------------------------------

    def _entered(self) -> None:
        self._busy += 1
        self._idle.clear()

    def _left(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    async def _after_failure(
        self, origin: MessageOrigin, messages: list[Message], generation: int, result: ListenerResult
    ) -> None:
        for message in messages[: result.consumed]:
            origin.finished(message, generation)
        for message in messages[result.consumed :]:
            if await self._is_handed_over(origin.queue, message, result.delay_level):
                origin.finished(message, generation)
            else:
                self._again_later(origin, [message], generation)

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

    def _again_later(self, origin: MessageOrigin, messages: list[Message], generation: int) -> None:
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._put_again, origin, messages, generation)

    def _put_again(self, origin: MessageOrigin, messages: list[Message], generation: int) -> None:
        for message in messages:
            message.reconsume_times += 1
        self._put((origin, messages, generation))
