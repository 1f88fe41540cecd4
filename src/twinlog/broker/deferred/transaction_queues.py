"""The prepared and op queues of one broker: which messages are finished, and the op records about them.

What it has learnt holds for one term as master (`transaction_takeover`); `reset` begins a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from twinlog.base.system_names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from twinlog.broker.deferred.alarm import Alarm
from twinlog.broker.deferred.op_records import (
    OP_INTERVAL_MS,
    OP_TAG,
    OpBuffer,
    OpTracker,
    decode_op_body,
    encode_op_body,
)
from twinlog.broker.deferred.transaction_rules import identity
from twinlog.store.log.append import Draft
from twinlog.wire import properties as names
from twinlog.wire.properties import encode_properties

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.deferred.parked_record import ParkedRecord
    from twinlog.wire.message import Message

SLICE_MESSAGES = 100  # read or checked in one go before other tasks run
RETRY_MS = 1_000
OFFSET_LOST_BACK_MS_MIN = 600_000


class TransactionQueues:
    """Reads both queues, and writes op records; `alarm` rings when one is due."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self.alarm = Alarm(ctx.clock_ms, moves=ctx.clock_moves)
        self._ops = OpBuffer()
        self._trackers: dict[int, OpTracker] = {}
        self._progress: dict[int, int] = {}  # next prepared offset to check, per queue

    def reset(self) -> None:
        self._trackers.clear()
        self._progress.clear()
        self._ops = OpBuffer()

    def queue_ids(self) -> range:
        config = self._ctx.topics.get(HALF_TOPIC)
        return range(config.read_queue_nums if config is not None else 1)

    @property
    def open_count(self) -> int:
        """Messages whose producer has not decided, as of the last check and the answers since then."""
        store, count = self._ctx.store, 0
        for queue_id in self.queue_ids():
            waiting = store.max_offset(HALF_TOPIC, queue_id) - self.progress(queue_id)
            count += max(waiting - self.tracker(queue_id).finished_count - len(self._ops.offsets(queue_id)), 0)
        return count

    # -- what is finished ----------------------------------------------------------------------

    def is_ended(self, message: Message | ParkedRecord) -> bool:
        """Whether this message, or another copy of it, was committed or rolled back before."""
        return self.tracker(message.queue_id).is_finished(message.queue_offset, identity(message))

    def is_known(self, queue_id: int, prepared_offset: int) -> bool:
        """The same without the message: whether it is finished by its offset alone."""
        tracker = self._trackers.get(queue_id)
        return tracker is not None and tracker.is_finished(prepared_offset, prepared_offset)

    def note_end(self, message: Message | ParkedRecord) -> None:
        """This message is finished; an op record names it soon."""
        now_ms = self._ctx.clock_ms()
        self.tracker(message.queue_id).end(identity(message))
        if self._ops.add(message.queue_id, message.queue_offset, now_ms):
            self.flush_ops([message.queue_id])
        else:
            self.alarm.set(now_ms + OP_INTERVAL_MS)

    def tracker(self, queue_id: int) -> OpTracker:
        tracker = self._trackers.get(queue_id)
        if tracker is None:
            tracker = self._trackers[queue_id] = OpTracker(self._start(OP_TOPIC, queue_id))
        return tracker

    # -- op records ----------------------------------------------------------------------------

    def read_ops(self, queue_id: int) -> Iterator[None]:
        """Take in the op records written since the last round, by this broker or an earlier master of this log."""
        store, progress, tracker = self._ctx.store, self.progress(queue_id), self.tracker(queue_id)
        end, read = store.max_offset(OP_TOPIC, queue_id), 0
        while tracker.next_read < end:
            op_offset = tracker.next_read
            message = self.message(OP_TOPIC, queue_id, op_offset)
            tracker.read(op_offset, decode_op_body(message.body) if message is not None else [], progress)
            read += 1
            if read % SLICE_MESSAGES == 0:
                yield

    def flush_due_ops(self) -> None:
        self.flush_ops(self._ops.due(self._ctx.clock_ms()))

    def flush_all_ops(self) -> None:
        self.flush_ops(self._ops.queues())

    def flush_ops(self, queue_ids: list[int]) -> None:
        """Write the op records of these queues; what cannot be written now stays for the next time."""
        for queue_id in queue_ids:
            finished = self._ops.offsets(queue_id)
            if not finished:
                continue
            now_ms = self._ctx.clock_ms()
            if self._ctx.store.append(self._op_record(queue_id, finished, now_ms)).ok:
                self._ops.written(queue_id)
            else:
                self.alarm.set(now_ms + RETRY_MS)
        self._ctx.finish_appends()

    def _op_record(self, queue_id: int, finished: list[int], now_ms: int) -> Draft:
        pairs = {names.TAGS: OP_TAG, names.WAIT: "false", names.UNIQ_KEY: self._ctx.unique_ids.next(now_ms)}
        return Draft(
            OP_TOPIC,
            queue_id,
            encode_op_body(finished),
            encode_properties(pairs),
            self._ctx.settings.record_host,
            now_ms,
        )

    # -- how far the prepared queue is checked -------------------------------------------------

    def progress(self, queue_id: int) -> int:
        """The next message to check, within what the queue still holds: retention may have deleted open ones."""
        store = self._ctx.store
        at = self._progress.get(queue_id)
        if at is None:
            at = self._start(HALF_TOPIC, queue_id)
        at = min(max(at, store.min_offset(HALF_TOPIC, queue_id)), store.max_offset(HALF_TOPIC, queue_id))
        self._progress[queue_id] = at
        return at

    def passed(self, queue_id: int, prepared_offset: int) -> None:
        """The check is done with this message."""
        self.tracker(queue_id).passed(prepared_offset)
        self._progress[queue_id] = prepared_offset + 1

    def first_open(self, queue_id: int) -> int | None:
        """Where in the log the oldest message stands that no op record names; None when there is none."""
        store, at = self._ctx.store, self._first_to_search(queue_id)
        end, tracker = store.max_offset(HALF_TOPIC, queue_id), self.tracker(queue_id)
        while at < end and tracker.is_finished(at, at):
            at += 1
        unit = store.unit(HALF_TOPIC, queue_id, at) if at < end else None
        return None if unit is None else unit[0]

    def _first_to_search(self, queue_id: int) -> int:
        """The first message whose commit is searched for in the log.

        Where the group's offset is lost, old copies of messages seem open: they were written again, and no op record
        names them. A master writes each open one again in every round, and an op record within seconds. So what the
        last master left open stands in its last two rounds, and the whole log need not be searched.
        """
        store, settings, at = self._ctx.store, self._ctx.settings, self.progress(queue_id)
        if self._saved(HALF_TOPIC, queue_id) is not None:
            return at
        round_ms = settings.transaction_check_interval_ms + settings.transaction_timeout_ms + OP_INTERVAL_MS
        since_ms = store.last_timestamp - max(2 * round_ms, OFFSET_LOST_BACK_MS_MIN)
        return max(at, store.search_offset(HALF_TOPIC, queue_id, since_ms))

    def _start(self, topic: str, queue_id: int) -> int:
        """The group's offset; Java's first start has none, and begins with the oldest message."""
        store, saved = self._ctx.store, self._saved(topic, queue_id)
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        return low if saved is None else min(max(saved, low), high)

    def _saved(self, topic: str, queue_id: int) -> int | None:
        saved = self._ctx.offsets.get(TRANSACTION_GROUP, topic, queue_id)
        return None if saved is None or saved < 0 else saved

    def message(self, topic: str, queue_id: int, queue_offset: int) -> Message | None:
        unit = self._ctx.store.unit(topic, queue_id, queue_offset)
        return None if unit is None else self._ctx.store.message_at(unit[0], unit[1])
