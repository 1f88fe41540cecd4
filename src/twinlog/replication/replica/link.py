"""The replica's half of commit-log transfer."""

from dataclasses import dataclass

from twinlog.replication.errors import OffsetMismatch
from twinlog.replication.transfer import HEAD_BYTES, decode_head, encode_report
from twinlog.settings.replication import ReplicationSettings


@dataclass(frozen=True, slots=True)
class Append:
    """Bytes that belong at `physical_offset`; a transfer may arrive as several of these."""

    physical_offset: int
    data: memoryview


class ReplicaLink:
    """Feed it the master's bytes; append what it returns; then send `appended(...)` back.

    Invariant: each Append starts where the previous one ended, so the log has no holes. Data is returned as it
    arrives, without waiting for the end of its transfer: only an incomplete header is kept here.
    """

    def __init__(self, settings: ReplicationSettings, log_end: int, now_ms: int) -> None:
        self._settings = settings
        self._cut_head = b""
        self._data_left = 0
        self._next_offset = log_end
        self._starts_anywhere = log_end == 0  # an empty replica starts where the master begins to send
        self._heard_ms = now_ms
        self._reported = -1
        self._reported_ms = now_ms
        self.bytes_received = 0

    @property
    def next_offset(self) -> int:
        """Where the next byte of data belongs."""
        return self._next_offset

    def continues_at(self, log_end: int) -> bool:
        """Whether the next byte of data belongs at `log_end`; an empty replica knows it only after the first header."""
        return self._next_offset == log_end and not self._starts_anywhere

    def receive(self, data: memoryview, now_ms: int) -> list[Append]:
        """What to append now. Checks every header, heartbeats too, before any of its bytes."""
        self._heard_ms = now_ms
        self.bytes_received += len(data)
        appends: list[Append] = []
        at, end = 0, len(data)
        while at < end:
            if self._data_left:
                size = min(self._data_left, end - at)
                appends.append(Append(self._next_offset, data[at : at + size]))
                self._data_left -= size
                self._next_offset += size
                at += size
                continue
            at = self._take_head(data, at, end)
        return appends

    def appended(self, log_end: int, now_ms: int) -> bytes | None:
        """The report that acknowledges all bytes before `log_end`: they are in the log by now.

        None when nothing is new and the heartbeat is not due.
        """
        if log_end == self._reported and now_ms - self._reported_ms < self._settings.heartbeat_ms:
            return None
        self._reported, self._reported_ms = log_end, now_ms
        return encode_report(log_end)

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms > self._settings.silence_ms_max

    def _take_head(self, data: memoryview, at: int, end: int) -> int:
        """Read the header at `at`, or keep the part that is there; returns where to continue."""
        need = HEAD_BYTES - len(self._cut_head)
        if end - at < need:
            self._cut_head += bytes(data[at:end])
            return end
        head = decode_head(self._cut_head + bytes(data[at : at + need]))
        self._cut_head = b""
        if self._starts_anywhere:
            self._next_offset = head.physical_offset
        elif head.physical_offset != self._next_offset:
            raise OffsetMismatch(replica=self._next_offset, master=head.physical_offset)
        self._data_left = head.size
        # Java: a heartbeat too creates the first file of an empty replica, but does not fix where it starts.
        self._starts_anywhere = self._starts_anywhere and head.size == 0
        return at + need
