"""Dispatch requests: what queues, index and plug-ins need to know of each record.

Batches of `DispatchRequest` go to a list of dispatchers, in log order and in list order: filter bitmap (if the broker
wants it), consume queues, index, then those of plug-ins. After a crash a dispatcher may get a record twice and must
ignore what it has: recovery gives a plug-in's dispatcher every record that it scans, and the scan begins before the
first record that was not flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from twinlog.wire.properties import decode_properties


class DispatchRequest(msgspec.Struct, gc=False):
    """One whole record of the log, as the dispatchers need it; its bytes are already in place.

    A Struct, not a dataclass: one is made per message sent, and this one is made in C.
    `tags_code` is final: the hash of TAGS, or the delivery time for a parked delay message.
    A record of an inner batch has `batch_size` > 1 and `queue_offset` of its first message.
    """

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    keys: str = ""  # the user's KEYS, separated by spaces
    uniq_key: str | None = None
    sys_flag: int = 0
    prepared_transaction_offset: int = 0
    properties_bytes: bytes | memoryview = b""
    batch_size: int = 1
    bitmap: bytes | None = None  # set by an early dispatcher, kept in the queue extension
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The record's properties, decoded on first use: most are never used."""
        if self._properties is None:
            self._properties = decode_properties(bytes(self.properties_bytes))
        return self._properties


@runtime_checkable
class Dispatcher(Protocol):
    """Follows the log; `dispatch` takes records in log order, `flush` makes what it took durable."""

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None: ...

    def flush(self) -> None: ...


@runtime_checkable
class CutDispatcher(Dispatcher, Protocol):
    """A plug-in's dispatcher that also follows cuts: from `log_end` on, other records will come."""

    def truncate_after(self, log_end: int) -> None: ...
