"""The messages of one queue that are pulled and not yet consumed. No I/O, no clock."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.wire.message import Message


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Above these a queue is not pulled until its consumer has caught up."""

    messages_max: int = 1_000
    bytes_max: int = 100 * 1024 * 1024
    span_max: int = 2_000  # offsets between the oldest and the newest message that is not consumed


class ProcessQueue:
    """Invariant: `commit_offset` never passes a message that is not acknowledged.

    `generation` changes when the queue jumps to another offset; messages taken before no longer count.
    """

    def __init__(self, offset: int) -> None:
        self._waiting: OrderedDict[int, Message] = OrderedDict()
        self.next_offset = offset  # where the next pull starts
        self.bytes = 0
        self.generation = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def commit_offset(self) -> int:
        """Everything before this offset is consumed."""
        return next(iter(self._waiting), self.next_offset)

    @property
    def newest_offset(self) -> int:
        return next(reversed(self._waiting), self.next_offset)

    def add(self, messages: Iterable[Message], next_offset: int) -> None:
        """Add the messages of a pull; offsets only grow."""
        for message in messages:
            assert message.queue_offset >= self.next_offset, "a pull went backwards"
            self._waiting[message.queue_offset] = message
            self.bytes += len(message.body)
        self.next_offset = next_offset

    def acknowledge(self, message: Message, generation: int) -> None:
        """The message is consumed; one of an earlier generation is ignored."""
        if generation == self.generation and self._waiting.pop(message.queue_offset, None) is not None:
            self.bytes -= len(message.body)

    def jump(self, offset: int) -> None:
        """Drop all messages and continue at `offset`."""
        self._waiting.clear()
        self.bytes = 0
        self.next_offset = offset
        self.generation += 1

    def is_full(self, limits: CacheLimits) -> bool:
        if not self._waiting:
            return False
        span = self.newest_offset - self.commit_offset
        return len(self) >= limits.messages_max or self.bytes >= limits.bytes_max or span >= limits.span_max
