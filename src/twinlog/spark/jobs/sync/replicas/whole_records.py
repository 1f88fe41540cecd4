"""Takes whole records from the bytes of a log as they arrive: only those are written to a replica.

A transfer may begin and end anywhere inside a record. What is taken here always ends with a record (or with the blank
end of a segment, which counts as one). The offset, lengths and body checksum of each record were checked, as a
broker's replica checks them. So a replica directory never ends with a partial record.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.store.errors import DamagedTransfer
from twinlog.store.scan.scan import find_record, scan
from twinlog.store.scan.stop import Stop
from twinlog.store.scan.walk import NextStep, next_step

BUFFER_BYTES = 16 * 1024 * 1024
BUFFER_BYTES_MAX = 256 * 1024 * 1024  # a blank end or a damaged range may be longer than any record


@dataclass(frozen=True, slots=True)
class Whole:
    """Checked bytes from `begin` on; the view is valid until the next call."""

    begin: int
    data: memoryview
    records: int
    last_record: int  # where the last record begins, -1 without one

    @property
    def end(self) -> int:
        return self.begin + len(self.data)


class WholeRecords:
    """Feed it consecutive bytes, take whole records.

    An invalid record raises DamagedTransfer, so that its bytes are asked for again. `known_damage` is where that
    happened before: if it happens there again, the master's log itself is damaged, and the bytes are copied as is.
    """

    def __init__(self, physical_offset: int, segment_bytes: int, *, known_damage: int = -1) -> None:
        self._begin = physical_offset  # of the first byte in the buffer
        self._segment_bytes = segment_bytes
        self._known_damage = known_damage
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._taken = 0
        self.damaged = 0  # bytes that were copied as they are

    @property
    def next_offset(self) -> int:
        """Where the next byte fed belongs."""
        return self._begin + self._filled

    @property
    def pending(self) -> int:
        """Bytes that wait to be taken, whole or not."""
        return self._filled - self._taken

    def feed(self, data: memoryview) -> None:
        self._drop_taken()
        need = self._filled + len(data)
        if need > len(self._buffer):
            self._grow(need)
        self._buffer[self._filled : need] = data
        self._filled = need

    def take(self) -> Whole | None:
        """All whole records that have arrived; None if there are none."""
        self._drop_taken()
        at, records, last_record = 0, 0, -1
        while at < self._filled:
            segment_end = self._segment_end(at)
            end = min(self._filled, segment_end)
            stop = None
            for batch in scan(memoryview(self._buffer), at, end, self._begin):
                stop = batch.stop
                if len(batch):
                    records += len(batch)
                    at = int(batch.position[-1] + batch.size[-1])
                    last_record = int(batch.physical_offset[-1])
            if at == segment_end:
                continue
            assert stop is not None
            try:
                behind = self._behind(stop, at, end, segment_end)
            except DamagedTransfer:
                if at == 0:
                    raise
                break  # the valid records before it come first
            if behind is None:
                break
            at = behind
        if at == 0:
            return None
        self._taken = at
        return Whole(self._begin, memoryview(self._buffer)[:at], records, last_record)

    def _behind(self, stop: Stop, at: int, end: int, segment_end: int) -> int | None:
        """Where to continue after a scan has stopped; None to wait for more bytes."""
        step = next_step(stop, end, segment_end)
        if step is NextStep.NEXT_SEGMENT:
            return segment_end
        if step is NextStep.WAIT:
            return None
        here = self._begin + at
        if here != self._known_damage:
            raise DamagedTransfer(here, stop.reason.value)
        found = find_record(bytes(self._buffer[:end]), at + 1, end, end, self._begin)
        behind = found if found is not None else (segment_end if end == segment_end else None)
        if behind is not None:
            self.damaged += behind - at
        return behind

    def _segment_end(self, at: int) -> int:
        """The end of the segment that holds buffer position `at`, as a buffer position."""
        here = self._begin + at
        return here - here % self._segment_bytes + self._segment_bytes - self._begin

    def _drop_taken(self) -> None:
        if self._taken:
            rest = self._filled - self._taken
            self._buffer[:rest] = self._buffer[self._taken : self._filled]
            self._begin, self._filled, self._taken = self._begin + self._taken, rest, 0

    def _grow(self, need: int) -> None:
        if need > BUFFER_BYTES_MAX:
            raise DamagedTransfer(self._begin, f"no record ends within {BUFFER_BYTES_MAX} bytes")
        larger = bytearray(max(need, 2 * len(self._buffer)))  # a new one: arrays of a scan may still hold the old
        larger[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._buffer = larger
