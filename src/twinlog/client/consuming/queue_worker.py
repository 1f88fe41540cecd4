"""Reads one queue for a push consumer: pulls ahead, passes messages on, tracks what is consumed.

Concurrent consumption passes every message to a ConcurrentConsumer that all queues share. Orderly consumption calls
the listener here, with one message at a time, and only while the broker's lock on the queue is held.
"""

import asyncio
import contextlib
import time
from typing import Protocol

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client.consuming.consumer_options import ConsumerOptions
from twinlog.client.consuming.listener import Listener, ListenerResult
from twinlog.client.consuming.offset_store import OffsetStore
from twinlog.client.consuming.process_queue import ProcessQueue
from twinlog.client.consuming.pulling import PullResult, PullStatus
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import REQUEST_FAILURES, BrokerRefused
from twinlog.client.routing.session import Session
from twinlog.client.tasks import TaskSet, is_cancelled
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue, SubscriptionData
from twinlog.wire.codes import ResponseCode
from twinlog.wire.message import Message

log = get_logger(__name__)
_AFTER_HEARTBEAT_MS = 200  # before the next pull
_FAILED_PULL_MS = 1_000  # before the next pull by the same route
# The broker does not have this client's subscription, or an old one: it needs a heartbeat.
_HEARTBEAT_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


class Sink(Protocol):
    """Where pulled messages go: to listener calls, or to a list that the user polls."""

    def start(self) -> None: ...
    async def close(self, seconds_max: float) -> None: ...
    def put(self, origin: "QueueWorker", messages: list[Message]) -> None: ...


class QueueWorker:
    """One assigned queue, from `start` to `stop`."""

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        group: str,
        options: ConsumerOptions,
        *,
        session: Session,
        calls: QueueCalls,
        store: OffsetStore,
        subscription: SubscriptionData,
        listener: Listener | None,
        sink: Sink,
        committed: int | None = None,
    ) -> None:
        self.queue, self.subscription = queue, subscription
        self.process = ProcessQueue(offset)
        self.stopped = self.paused = False
        self.locked_until = 0.0
        self.pulled_at_ms = self.consumed_at_ms = wall_clock_ms()
        self._group, self._options, self._needs_lock = group, options, options.needs_locks
        self._session, self._calls, self._store = session, calls, store
        self._listener, self._sink = listener, sink
        self._batch_max = max(1, options.batch_count_max)
        self._held: list[list[Message]] = []  # while paused: what was pulled before, and no listener has begun
        self._committed = committed
        self._commits_wait = False  # after a jump that is not progress, until `accept_jump`
        self._changed = asyncio.Event()  # room in the cache, messages to consume, or a lock
        self._arrived: list[Message] = []  # orderly: what waits for its turn
        self._pulling: asyncio.Task[PullResult] | None = None
        self._tasks = TaskSet()
        self._ordered: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._tasks.keep(self._pull_for_ever, f"pull {self.queue.topic} {self.queue.queue_id}")
        if self._options.orderly:
            self._ordered = self._tasks.keep(self._consume_in_order, f"consume {self.queue.topic}")

    async def stop(self, seconds_max: float = 10) -> None:
        """End reading; a running listener call may finish, within the time."""
        self.stopped = True
        self._changed.set()
        if self._ordered is not None:
            await asyncio.wait([self._ordered], timeout=seconds_max)
        await self._tasks.close()

    async def commit(self) -> None:
        """Save the progress if it has changed."""
        offset, generation = self.process.commit_offset, self.process.generation
        if offset != self._committed and not self._commits_wait:
            await self._store.save(self.queue, offset)
            if generation == self.process.generation:
                self._committed = offset

    def jump(self, offset: int, *, is_progress: bool = True) -> None:
        """Continue at `offset`; messages that were pulled before are dropped.

        A jump that is not progress is saved by no `commit` before `accept_jump`.
        """
        self.process.jump(offset)
        self._arrived.clear()
        self._held.clear()
        if self._pulling is not None:
            self._pulling.cancel()
        self._committed = None
        self._commits_wait = not is_progress
        self._changed.set()

    def accept_jump(self) -> None:
        """Let `commit` save where the last jump went."""
        self._commits_wait = False

    def pause(self) -> None:
        """Pull nothing, and begin no listener call, until `resume`; calls that have begun go on."""
        self.paused = True

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        held, self._held = self._held, []
        for messages in held:
            self._sink.put(self, messages)
        self._changed.set()

    def hold(self, messages: list[Message], generation: int) -> None:
        """Keep messages for `resume`, whose turn came while this queue is paused."""
        if generation != self.process.generation:
            return
        if self.paused:
            self._held.append(messages)
        else:
            self._sink.put(self, messages)

    def lock_until(self, when: float) -> None:
        self.locked_until = when
        self._changed.set()

    @property
    def is_locked(self) -> bool:
        return not self._needs_lock or time.monotonic() < self.locked_until

    def finished(self, message: Message, generation: int) -> None:
        """A message is consumed, or the broker has taken it back."""
        self.process.acknowledge(message, generation)
        self.consumed_at_ms = wall_clock_ms()
        self._changed.set()

    # -- pulling -------------------------------------------------------------------------------

    async def _pull_for_ever(self) -> None:
        while not self.stopped:
            if self.paused or self.process.is_full(self._options.limits) or not self.is_locked:
                self._changed.clear()
                await self._pause(1_000)
                continue
            generation = self.process.generation
            self._pulling = asyncio.create_task(self._pull(), name="pull")
            try:
                result = await self._pulling
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                continue  # `jump` has ended it: a broker may hold a pull for long
            except REQUEST_FAILURES as error:
                await self._recover(error)
                continue
            if generation == self.process.generation:
                self._take(result)

    async def _pull(self) -> PullResult:
        return await self._calls.pull(
            self._group,
            self.queue,
            self.process.next_offset,
            self.subscription,
            count_max=self._options.pull_count_max,
            wait_ms=self._options.hold_ms,
            send_subscription=False,
        )

    def _take(self, result: PullResult) -> None:
        self.pulled_at_ms = wall_clock_ms()
        if result.status is PullStatus.OFFSET_MOVED:
            log.warning(
                "the broker moved this consumer",
                topic=self.queue.topic,
                queue=self.queue.queue_id,
                offset=self.process.next_offset,
                to=result.next_offset,
            )
            self.jump(result.next_offset, is_progress=not self._commits_wait)
            return
        # A broker returns an inner batch whole, with messages before the one that was asked for.
        new = [message for message in result.messages if message.queue_offset >= self.process.next_offset]
        self.process.add(new, max(result.next_offset, self.process.next_offset))
        for message in new:
            restore_topic(message)
        if self._options.orderly:
            self._arrived += new
        else:
            for at in range(0, len(new), self._batch_max):
                self._sink.put(self, new[at : at + self._batch_max])
        self._changed.set()

    async def _recover(self, error: Exception) -> None:
        """Log the error, then do what lets the next pull succeed: a heartbeat, or a new route."""
        if self.stopped:
            return
        if isinstance(error, BrokerRefused) and error.code in _HEARTBEAT_CODES:
            await self._session.send_heartbeats([error.address])
            pause_ms = _AFTER_HEARTBEAT_MS
        else:
            log.warning("a pull failed", topic=self.queue.topic, queue=self.queue.queue_id, error=str(error))
            route, pause_ms = self._session.known_route(self.queue.topic), _FAILED_PULL_MS
            with contextlib.suppress(*REQUEST_FAILURES):
                if await self._session.renewed_route(self.queue.topic, _FAILED_PULL_MS) != route:
                    pause_ms = 0
        self._changed.clear()
        await self._pause(pause_ms)

    async def _pause(self, ms: float) -> None:
        try:
            async with asyncio.timeout(ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- in order ------------------------------------------------------------------------------

    async def _consume_in_order(self) -> None:
        assert self._listener is not None
        while not self.stopped:
            if not self._arrived or self.paused or not self.is_locked:
                self._changed.clear()
                await self._pause(1_000)
                continue
            messages, generation = self._arrived[: self._batch_max], self.process.generation
            result = await self._listener.call(messages)
            if generation != self.process.generation:
                continue
            done = len(messages) if result.ok else result.consumed
            while done < len(messages) and await self._is_dead_lettered(messages[done], result):
                done += 1
            if generation != self.process.generation:
                continue
            del self._arrived[:done]
            for message in messages[:done]:
                self.finished(message, generation)
            if done < len(messages) and not self.stopped:
                for message in messages[done:]:
                    message.reconsume_times += 1
                await asyncio.sleep(self._options.retry_pause_ms / 1000)

    async def _is_dead_lettered(self, message: Message, result: ListenerResult) -> bool:
        """Dead-letter a message that has failed too often; whether its queue can continue after it."""
        limit = self._options.retries_max
        if result.delay_level >= 0 and (limit < 0 or message.reconsume_times < limit):
            return False
        try:
            await self._calls.send_back(self._group, self.queue, message, -1, self._options.retries_max)
        except REQUEST_FAILURES as error:
            log.warning("a message could not be dead-lettered", id=message.message_id, error=str(error))
            return False
        return True


def restore_topic(message: Message) -> None:
    """Give a retried message the topic that it was sent to."""
    origin = message.properties.get(names.RETRY_TOPIC)
    if origin and message.topic.startswith(RETRY_PREFIX):
        message.topic = origin
