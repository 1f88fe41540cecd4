"""The master's half of commit-log transfer, for one replica.

    WAITING --first report--> SENDING --reports--> ...
       |                         |
       +-- offset deleted -------+--> STUCK: only heartbeats, never counted

The first word may be a pass (see `transfer`); every other word is a report. Time and the log's bounds are arguments:
nothing here reads a clock, a file or a socket.
"""

from dataclasses import dataclass
from enum import StrEnum

from twinlog.replication.errors import ReportError
from twinlog.replication.transfer import REPORT, TRANSFER_BYTES_MAX, encode_head, pass_number
from twinlog.settings.replication import ReplicationSettings


class LinkState(StrEnum):
    WAITING = "waiting"  # for the first report
    SENDING = "sending"
    STUCK = "stuck"  # the master has deleted the bytes that it needs next


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bytes that the master's log holds at this moment, and the size of its files."""

    start: int
    end: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """Send `head`, then `size` bytes of the log from `physical_offset`; size 0 is a heartbeat."""

    physical_offset: int
    size: int

    @property
    def head(self) -> bytes:
        return encode_head(self.physical_offset, self.size)


class MasterLink:
    """Decides what one replica is sent and which of its reports are accepted.

    Invariant: `acked` never exceeds what was sent on this link (or the first report), and never the
    master's own end; a report that would break this raises ReportError and nothing is acknowledged.
    """

    def __init__(self, settings: ReplicationSettings, now_ms: int, *, whole_history: bool = False) -> None:
        self._settings = settings
        self.whole_history = whole_history
        self.batches_at_once = 1
        self._words = b""
        self._heard_ms = now_ms
        self._wrote_ms = now_ms
        self._window_ms = now_ms
        self._window_bytes = 0
        self.state = LinkState.WAITING
        self.pass_number: int | None = None
        self.requested: int | None = None
        self.acked = 0
        self.next_offset = 0
        self.bytes_sent = 0

    def receive(self, data: bytes, log: LogBounds, now_ms: int) -> None:
        """Take the replica's bytes. Stops after a pass: call again with no bytes once its holder is known."""
        self._heard_ms = now_ms
        words, at = self._words + data, 0
        while len(words) - at >= REPORT.size:
            (word,) = REPORT.unpack_from(words, at)
            at += REPORT.size
            if self._take(word, log):
                break
        self._words = words[at:]

    def next_transfer(self, log: LogBounds, now_ms: int) -> Transfer | None:
        """The next transfer or heartbeat; None while there is nothing to send. Call again until it is None."""
        if self.state is LinkState.SENDING:
            if self.next_offset < log.start:
                self._become_stuck()
            else:
                size = self._size(log, now_ms)
                if size > 0:
                    transfer = Transfer(self.next_offset, size)
                    self.next_offset += size
                    self.bytes_sent += size
                    self._wrote_ms = now_ms
                    return transfer
        if self.state is not LinkState.WAITING and now_ms - self._wrote_ms >= self._settings.heartbeat_ms:
            self._wrote_ms = now_ms
            return Transfer(self.next_offset, 0)
        return None

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms > self._settings.silence_ms_max

    def _take(self, word: int, log: LogBounds) -> bool:
        """Accept one word or raise ReportError; True when it was a pass."""
        if self.requested is None and self.pass_number is None:
            self.pass_number = pass_number(word)
            if self.pass_number is not None:
                return True
        if word < 0:
            raise ReportError(f"a report of {word} is not the end of a log; is this a replica?")
        if word > log.end:
            raise ReportError(
                f"the replica's log ends at {word}, the master's at {log.end}: its tail may be the only "
                "copy of acknowledged messages; compare both logs before it rejoins"
            )
        if self.requested is None:
            self._begin_sending(word, log)
        elif word < self.acked:
            raise ReportError(
                f"the replica went back from {self.acked} to {word}; a replica that cut its log reconnects"
            )
        elif word > self.next_offset:
            raise ReportError(f"the replica acknowledges {word}, it was sent bytes up to {self.next_offset} only")
        self.acked = word
        return False

    def _begin_sending(self, requested: int, log: LogBounds) -> None:
        """The first report: WAITING becomes SENDING, or STUCK when the log begins behind it."""
        self.requested = requested
        self.next_offset = requested
        self.state = LinkState.SENDING
        if requested == 0:
            # Java: a replica at 0 gets the newest segment only.
            newest = log.end - log.end % log.segment_bytes
            self.next_offset = log.start if self.whole_history else max(newest, log.start)
        elif requested < log.start:
            self._become_stuck()

    def _become_stuck(self) -> None:
        """From now on only heartbeats; the link stays open, so that operators see it."""
        self.state = LinkState.STUCK

    def _size(self, log: LogBounds, now_ms: int) -> int:
        """Bytes for the next transfer: within one segment, the batch size, and what this second still allows."""
        segment_end = self.next_offset - self.next_offset % log.segment_bytes + log.segment_bytes
        size = min(log.end, segment_end) - self.next_offset
        size = min(size, self._settings.batch_bytes_max * self.batches_at_once, TRANSFER_BYTES_MAX)
        if self._settings.flow_control and size > 0:
            if now_ms - self._window_ms >= 1000:
                self._window_ms, self._window_bytes = now_ms, 0
            size = max(0, min(size, self._settings.bytes_per_second_max - self._window_bytes))
            self._window_bytes += size
        return size
