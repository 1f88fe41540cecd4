"""What happened in a run: every send with its outcome, every fault with its time, and what can be read in the end.

A send ends in one of three ways:

    ACKNOWLEDGED   the broker answered SEND_OK: the message is promised
    REFUSED        a definite error: the broker answered that it did nothing, or no connection was made
    UNKNOWN        an indefinite error: no answer, a lost connection, or stored but not replicated or flushed in time
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from twinlog.wire.message import Message


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One send, with the times (monotonic seconds) at which it began and ended."""

    producer: int
    sequence: int
    began: float
    ended: float
    outcome: Outcome
    broker: str = ""
    queue: int = -1
    queue_offset: int = -1
    reason: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return self.producer, self.sequence


@dataclass(frozen=True, slots=True)
class Read:
    """One message as a broker gives it."""

    queue: int
    queue_offset: int
    producer: int
    sequence: int
    is_whole: bool = True

    @property
    def key(self) -> tuple[int, int]:
        return self.producer, self.sequence


@dataclass
class History:
    """Safe to write from several threads."""

    seed: int = 0
    sends: list[Send] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, send: Send) -> None:
        with self._lock:
            self.sends.append(send)

    def fault(self, at: float, what: str) -> None:
        with self._lock:
            self.faults.append((at, what))

    def count(self, outcome: Outcome) -> int:
        return sum(1 for send in list(self.sends) if send.outcome is outcome)

    def __str__(self) -> str:
        parts = [f"{self.count(outcome)} {outcome.value}" for outcome in Outcome]
        return f"seed {self.seed}: {len(self.sends)} sent, {', '.join(parts)}, {len(self.faults)} faults"


def body_of(producer: int, sequence: int, payload: bytes) -> bytes:
    """A body that names its send and carries a checksum over all of it."""
    head = b"%d:%d:" % (producer, sequence)
    return head + b"%08x:" % zlib.crc32(head + payload) + payload


def read_of(message: Message) -> Read:
    """What a message says about itself; one that says nothing sensible is not whole."""
    try:
        producer, sequence, checksum, payload = message.body.split(b":", 3)
        is_whole = zlib.crc32(b"%b:%b:" % (producer, sequence) + payload) == int(checksum, 16)
        numbers = int(producer), int(sequence)
    except ValueError:
        return Read(message.queue_id, message.queue_offset, -1, -1, False)
    return Read(message.queue_id, message.queue_offset, *numbers, is_whole)


def reads_of(messages: Iterable[Message]) -> list[Read]:
    return [read_of(message) for message in messages]
