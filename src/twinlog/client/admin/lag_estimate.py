"""How many records a replica is behind, estimated from the first records that it lacks. No I/O.

The caller asks the master for the record at `wanted` and passes it to `take`, until nothing is wanted.
"""

from __future__ import annotations

from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_message

RECORDS_ASKED_MAX = 100  # each is a request of its own


class LagEstimate:
    """Counts the records from `begin`, the end of the replica's log, to `end`, the end of the master's log.

    At most RECORDS_ASKED_MAX records are read; the number of the others is estimated from the mean size of these.
    """

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end, self._at = begin, end, begin
        self._count = 0
        self._unreadable = False
        self.oldest_ms: int | None = None  # when the first of them was stored

    @property
    def wanted(self) -> int | None:
        """The physical offset of the next record to read; None when the estimate is complete."""
        if self._unreadable or self._at >= self._end or self._count >= RECORDS_ASKED_MAX:
            return None
        return self._at

    def take(self, record: bytes | None) -> None:
        """Count the record at `wanted`; None means that the master has no record there."""
        try:
            message = decode_message(record or b"", check_crc=False)
        except WireError:
            self._unreadable = True  # the end of a segment, or not the start of a record
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
        """How many records are missing; None when not even the first could be read."""
        if self.is_exact or not self._count:
            return self._count or None
        return round((self._end - self._begin) * self._count / (self._at - self._begin))
