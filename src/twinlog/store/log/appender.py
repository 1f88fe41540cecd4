"""What every way of appending needs: the log's end, the next offset of each queue, encoded hosts, limits, the clock.

`append`, `append_run`, `append_batch` and `append_batches` share one `Appender`. They run for every message, so they
read its members directly, and ask its methods only for what is not cached yet.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence

from twinlog.base.system_names import RETRY_PREFIX, SCHEDULE_TOPIC
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.log.batch_layout import BatchLayouts
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.record_crc import CRC_PROPERTY_BYTES
from twinlog.store.topic_name import is_topic
from twinlog.wire.errors import WireError
from twinlog.wire.java_text import utf16_length
from twinlog.wire.numbers import INT_MAX, INT_MIN
from twinlog.wire.record_layout import (
    BLANK_BYTES,
    HEAD_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_BYTES_V1_MAX,
)
from twinlog.wire.values.message_id import encode_host

TOPIC_BYTES_MAX = 255  # only %RETRY% topics may be longer than 127
RECORD_SLACK = 64 * 1024  # a record may exceed maxMessageSize by topic and properties
PACKED_LENGTHS = [PROPERTIES_LENGTH.pack(n) for n in range(4096)]
_CACHED_MAX = 262144  # queues or hosts; a queue takes some 300 bytes


class QueueCursor:
    """Where the next message of one queue goes, and what the records of its topic have in common."""

    __slots__ = ("fixed_bytes", "is_schedule", "magic", "next_offset", "topic_bytes")

    def __init__(self, magic: int, topic_bytes: bytes, next_offset: int, is_schedule: bool) -> None:
        self.magic = magic
        self.topic_bytes = topic_bytes  # with its length in front
        self.fixed_bytes = HEAD_BYTES + len(topic_bytes) + PROPERTIES_LENGTH.size  # with IPv4 hosts
        self.next_offset = next_offset
        self.is_schedule = is_schedule


class Appender:
    """Holds the state of appending to `log`; each record appended leaves a dispatch request in `pending`."""

    def __init__(
        self,
        log: CommitLog,
        *,
        store_host: tuple[str, int],
        clock_ms: Callable[[], int],
        next_offset: Callable[[str, int], int],
        delay_levels: DelayLevels,
        message_size_max: int = 4 * 1024 * 1024,
        append_crc: bool = False,
        crc_forced: bool = False,
        long_topics: bool = True,
    ) -> None:
        self.log = log
        self.pending: list[DispatchRequest] = []
        self.earlier: list[Sequence[DispatchRequest]] = []  # requests before those in `pending`, some as columns
        self.last_timestamp = 0
        self.clock_ms = clock_ms
        self.delay_levels = delay_levels
        self.limit_messages(message_size_max)
        self.crc_bytes = CRC_PROPERTY_BYTES if append_crc else 0  # of a record's checksum, see `record_crc`
        self.crc_forced = crc_forced and append_crc  # refuse properties that leave no room for it
        self.store_host = encode_host(store_host)
        self.hosts: dict[tuple[str, int], bytes] = {}
        self.queues: dict[tuple[str, int], QueueCursor] = {}
        self.layouts = BatchLayouts(self.crc_bytes)
        # The part of the last segment that is mapped, populated and free for records goes up to `ready_end`.
        self.memory: mmap.mmap | None = None
        self.base = 0  # physical offset of the first byte of `memory`
        self.ready_end = -1
        self._next_offset = next_offset
        self._long_topics = long_topics

    def limit_messages(self, message_size_max: int) -> None:
        """Take bodies up to this size from now on."""
        self.body_bytes_max = message_size_max
        self.record_bytes_max = message_size_max + RECORD_SLACK

    def forget(self, topic: str | None = None) -> None:
        """Ask for next queue offsets again, of one topic or of all: its queues or the log have changed."""
        if topic is None:
            self.queues.clear()
        else:
            for key in [key for key in self.queues if key[0] == topic]:
                del self.queues[key]
        self.memory, self.ready_end = None, -1

    def add_run(self, run: Sequence[DispatchRequest]) -> None:
        """Add requests of records that were just appended, as one sequence that stays together."""
        if self.pending:
            self.earlier.append(self.pending)
            self.pending = []
        self.earlier.append(run)

    def take_runs(self) -> list[Sequence[DispatchRequest]]:
        """Take out all requests, in log order and in as few sequences as they came."""
        runs, self.earlier = self.earlier, []
        if self.pending:
            runs.append(self.pending)
            self.pending = []
        return runs

    def all_pending(self) -> list[DispatchRequest]:
        """All requests that were not taken out, as one list, which `pending` then is."""
        if self.earlier:
            self.pending = [request for run in self.take_runs() for request in run]
        return self.pending

    def make_ready(self, size: int) -> bool:
        """Prepare `size` bytes at the log's end, all in one segment; False if they are more than a segment holds."""
        log = self.log
        segment = log.tail()
        if log.log_end + size + BLANK_BYTES > segment.end:
            if size + BLANK_BYTES > segment.size:
                return False
            segment = log.roll()
        self.memory, self.base = segment.map, segment.base
        populated = segment.populate(log.log_end - segment.base + size)
        self.ready_end = min(segment.base + populated, segment.end - BLANK_BYTES)
        log.allocate_ahead()
        log.read_ahead()
        return True

    def queue(self, topic: str, queue_id: int) -> QueueCursor | None:
        """The cursor of a queue; None when the topic or the queue id is invalid."""
        return self.queues.get((topic, queue_id)) or self._open_queue(topic, queue_id)

    def _open_queue(self, topic: str, queue_id: int) -> QueueCursor | None:
        try:
            topic_bytes = topic.encode()
        except UnicodeEncodeError:
            return None
        if not is_topic(topic) or not INT_MIN <= queue_id <= INT_MAX:
            return None
        limit = TOPIC_BYTES_MAX if topic.startswith(RETRY_PREFIX) else TOPIC_BYTES_V1_MAX
        long = self._long_topics and utf16_length(topic) > TOPIC_BYTES_V1_MAX
        if len(topic_bytes) > limit or (len(topic_bytes) > TOPIC_BYTES_V1_MAX and not long):
            return None
        prefix = len(topic_bytes).to_bytes(2 if long else 1, "big")
        offset = self._next_offset(topic, queue_id)
        queue = QueueCursor(MAGIC_V2 if long else MAGIC_V1, prefix + topic_bytes, offset, topic == SCHEDULE_TOPIC)
        if len(self.queues) >= _CACHED_MAX:
            # The consume queues do not have pending records yet, so the offsets after those are only here.
            pending = {(one.topic, one.queue_id) for one in self.all_pending()}
            self.queues = {key: one for key, one in self.queues.items() if key in pending}
        self.queues[topic, queue_id] = queue
        return queue

    def host(self, host: tuple[str, int]) -> bytes | None:
        """The bytes of a host in a record; None when it is not an address."""
        if (known := self.hosts.get(host)) is not None:
            return known
        try:
            encoded = encode_host(host)
        except (ValueError, WireError):
            return None
        if len(self.hosts) >= _CACHED_MAX:
            self.hosts.clear()
        self.hosts[host] = encoded
        return encoded
