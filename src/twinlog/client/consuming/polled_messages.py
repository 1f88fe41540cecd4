"""Messages that were pulled and wait for the user's next poll. No I/O, no clock."""

import asyncio
from collections import deque

from twinlog.client.consuming.queue_worker import QueueWorker
from twinlog.wire.message import Message

_Pulled = tuple[QueueWorker, list[Message], int]


class PolledMessages:
    """What the workers of one consumer have pulled, in the order in which it came.

    A message that `take` returned counts as consumed after `settle`.
    """

    def __init__(self) -> None:
        self._ready: deque[_Pulled] = deque()
        self._out: list[tuple[QueueWorker, Message, int]] = []
        self._arrived = asyncio.Event()

    def start(self) -> None:
        """Nothing to start: the user polls."""

    async def close(self, seconds_max: float) -> None:
        """What was not polled is dropped, and never acknowledged."""
        self._ready.clear()

    def put(self, origin: QueueWorker, messages: list[Message]) -> None:
        self._ready.append((origin, messages, origin.process.generation))
        self._arrived.set()

    def wake(self) -> None:
        """Let `wait` return: queues are no longer paused."""
        self._arrived.set()

    async def wait(self) -> None:
        """Return once `take` may find more; call it right after a `take` that found nothing."""
        self._arrived.clear()
        await self._arrived.wait()

    def take(self, count_max: int) -> list[Message]:
        """The next messages. Those of paused queues stay, those of queues that have moved away are dropped."""
        found: list[Message] = []
        paused: list[_Pulled] = []
        while self._ready and len(found) < count_max:
            origin, messages, generation = self._ready.popleft()
            if origin.stopped or generation != origin.process.generation:
                continue
            if origin.paused:
                paused.append((origin, messages, generation))
                continue
            room = count_max - len(found)
            if len(messages) > room:
                self._ready.appendleft((origin, messages[room:], generation))
            for message in messages[:room]:
                found.append(message)
                self._out.append((origin, message, generation))
        self._ready.extendleft(reversed(paused))  # before later ones of the same queue
        return found

    def settle(self) -> None:
        """Everything that `take` has returned so far is consumed."""
        out, self._out = self._out, []
        for origin, message, generation in out:
            origin.finished(message, generation)

    def forget(self) -> None:
        """What `take` has returned since the last `settle` is not consumed, and comes again to the queues' readers."""
        self._out.clear()

    def position(self, origin: QueueWorker) -> int:
        """The offset of the next message that `take` may return of this queue."""
        generation = origin.process.generation
        waiting = [m for o, messages, g in self._ready if o is origin and g == generation for m in messages]
        return min((message.queue_offset for message in waiting), default=origin.process.next_offset)
