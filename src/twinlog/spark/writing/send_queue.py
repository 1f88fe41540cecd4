"""What waits to be sent to one queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.spark.offsets import where
from twinlog.spark.writing.rows import EncodedRows
from twinlog.wire.bodies import MessageQueue


@dataclass(slots=True)
class SendRequest:
    """Rows `begin` to `end` of `rows`, as one batch or as one message."""

    rows: EncodedRows
    begin: int
    end: int
    is_batch: bool

    @property
    def size(self) -> int:
        return int(self.rows.offsets[self.end] - self.rows.offsets[self.begin])


@dataclass(slots=True)
class SendQueue:
    """The requests for one queue, in their order; a free one may change to another queue."""

    queue: MessageQueue
    is_free: bool
    waiting: deque[SendRequest] = field(default_factory=deque)
    is_in_flight: bool = False  # the first of `waiting` is sent and not answered
    in_doubt: bool = False  # the first of `waiting` was sent; whether it was stored is unknown
    errors: list[str] = field(default_factory=list)  # since the last success
    refusals: int = 0  # since the last success: refused, or not answered in time
    away_since: float | None = None  # since when its broker is away

    def split_first(self, batch_bytes: int) -> bool:
        """Put batches of at most `batch_bytes` in place of the first request; False if it is one already."""
        first = self.waiting[0]
        if not first.is_batch or first.size <= batch_bytes or first.end - first.begin < 2:
            return False
        self.waiting.popleft()
        parts = [SendRequest(first.rows, *part) for part in first.rows.requests(first.begin, first.end, batch_bytes)]
        self.waiting.extendleft(reversed(parts))
        return True

    def reset_failures(self) -> None:
        self.errors.clear()
        self.refusals, self.away_since = 0, None

    def __str__(self) -> str:
        """The queue, and the rows that are sent next, as error messages name them."""
        request = self.waiting[0] if self.waiting else None
        if request is None:
            return where(self.queue)
        first = request.rows.piece.rows[request.begin]
        return f"{where(self.queue)} ({first} and {request.end - request.begin - 1} more)"


class StoredRows(Protocol):
    """Finds out what brokers hold, for a write that must store no row twice."""

    def count_stored(self, send_queue: SendQueue, request: SendRequest) -> int:
        """How many rows at the front of a request in doubt are stored."""
        ...

    def check_index(self, send_queue: SendQueue, rows: EncodedRows, row: int) -> None:
        """Raise if the broker does not find this row, which it has acknowledged."""
        ...
