"""How many records a replica lacks, by a look at the master's log; no I/O: whoever asks brokers feeds it."""

from __future__ import annotations

from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_message

RECORDS_ASKED_MAX = 100  # each is a request of its own


class MissingRecords:
    """Counts the records from `begin`, where the replica's log ends, to `end`, where the master's does.

    Ask the master for the record at `wanted` and hand it to `take`, until nothing is wanted. Beyond the first records
    the number goes by their size.
    """

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end, self._at = begin, end, begin
        self._count = 0
        self._lost = False
        self.oldest_ms: int | None = None  # when the first of them was stored

    @property
    def wanted(self) -> int | None:
        """The physical offset of the record to look at next."""
        if self._lost or self._at >= self._end or self._count >= RECORDS_ASKED_MAX:
            return None
        return self._at

    def take(self, record: bytes | None) -> None:
        try:
            message = decode_message(record or b"", check_crc=False)
        except WireError:
            self._lost = True  # the end of a segment, or amid a record
            return
        if self.oldest_ms is None:
            self.oldest_ms = message.store_timestamp
        self._at += message.store_size
        self._count += 1

    @property
    def is_exact(self) -> bool:
        return self._at >= self._end

    @property
    def messages(self) -> int | None:
        """How many are missing; None when not even the first could be read."""
        if self.is_exact or not self._count:
            return self._count or None
        return round((self._end - self._begin) * self._count / (self._at - self._begin))
