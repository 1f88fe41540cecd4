"""The numbers about waiting messages that tables and metrics show; the services in `deferred` provide them."""

from __future__ import annotations

from typing import Protocol


class TimerNumbers(Protocol):
    """Timer messages of one broker."""

    enqueued: int  # parked since the start
    dequeued: int  # delivered since the start

    @property
    def pending(self) -> int: ...

    @property
    def read_behind_ms(self) -> int: ...

    @property
    def offset_behind(self) -> int: ...


class TransactionNumbers(Protocol):
    """Transactions of one broker."""

    commits: int
    rollbacks: int

    @property
    def open_count(self) -> int: ...
