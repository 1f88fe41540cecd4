"""Op records: which half messages are finished, and how far the op queue is read.

    prepared queue   ... | 7 | 8 | 9 | ...     RMQ_SYS_TRANS_HALF_TOPIC
    op queue         ... | "7,9," | ...        RMQ_SYS_TRANS_OP_HALF_TOPIC: these are finished

An op record names many queue offsets and is written up to three seconds after the first of them was finished.
"""

from __future__ import annotations

from collections.abc import Iterable

OP_TAG = "d"
OP_BODY_BYTES_MAX = 4096
OP_INTERVAL_MS = 3_000
ENDED_MAX = 200_000


def encode_op_body(prepared_offsets: Iterable[int]) -> bytes:
    return "".join(f"{offset}," for offset in prepared_offsets).encode()


def decode_op_body(body: bytes) -> list[int]:
    """The queue offsets that an op record names; 4.x writes a single one, without a comma."""
    return [int(word) for word in body.split(b",") if word.strip().isdigit()]


class OpBuffer:
    """Finished messages that no op record names yet, per queue. An op record is due by time or by size."""

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._bytes: dict[int, int] = {}
        self._since_ms: dict[int, int] = {}

    def add(self, queue_id: int, prepared_offset: int, now_ms: int) -> bool:
        """Note a finished message; True when its queue has enough for an op record."""
        self._offsets.setdefault(queue_id, []).append(prepared_offset)
        self._since_ms.setdefault(queue_id, now_ms)
        self._bytes[queue_id] = self._bytes.get(queue_id, 0) + len(str(prepared_offset)) + 1
        return self._bytes[queue_id] >= OP_BODY_BYTES_MAX

    def due(self, now_ms: int) -> list[int]:
        """Queues whose op record should be written now."""
        return [
            queue_id
            for queue_id, since_ms in self._since_ms.items()
            if now_ms - since_ms >= OP_INTERVAL_MS or self._bytes[queue_id] >= OP_BODY_BYTES_MAX
        ]

    def queues(self) -> list[int]:
        return list(self._offsets)

    def offsets(self, queue_id: int) -> list[int]:
        """What the next op record of the queue names; `written` removes it."""
        return self._offsets.get(queue_id, [])

    def written(self, queue_id: int) -> None:
        for part in (self._offsets, self._bytes, self._since_ms):
            part.pop(queue_id, None)


class OpTracker:
    """Which half messages of one queue are finished, and which op records need not be read again.

    A half message that was written again keeps the identity of its first copy, so that it ends once, whichever copy
    its producer names. The last `ENDED_MAX` identities are kept, which also makes a repeated commit harmless.
    """

    def __init__(self, op_offset: int) -> None:
        self.done_offset = op_offset  # op records before it name only messages that the check has passed
        self.next_read = op_offset
        self._finished: dict[int, int] = {}  # prepared offset not passed yet -> op offset that names it
        self._open: dict[int, int] = {}  # op offset -> how many of its prepared offsets are not passed yet
        self._ended: dict[int, None] = {}  # identities, oldest first

    def end(self, identity: int) -> None:
        """A producer has just committed or rolled back this message."""
        self._ended[identity] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def read(self, op_offset: int, prepared_offsets: Iterable[int], progress: int) -> None:
        """Take in the op record at `op_offset`; messages before `progress` were passed before."""
        self.next_read = op_offset + 1
        fresh = 0
        for offset in prepared_offsets:
            self.end(offset)
            if offset >= progress and offset not in self._finished:
                self._finished[offset] = op_offset
                fresh += 1
        self._open[op_offset] = fresh
        self._advance()

    def is_finished(self, prepared_offset: int, identity: int) -> bool:
        return prepared_offset in self._finished or prepared_offset in self._ended or identity in self._ended

    @property
    def finished_count(self) -> int:
        """How many messages are named by an op record and not passed yet."""
        return len(self._finished)

    def passed(self, prepared_offset: int) -> None:
        """The check's progress in the prepared queue is beyond this offset."""
        op_offset = self._finished.pop(prepared_offset, None)
        if op_offset is not None:
            self._open[op_offset] -= 1
            self._advance()

    def _advance(self) -> None:
        while self._open.get(self.done_offset) == 0:
            del self._open[self.done_offset]
            self.done_offset += 1
