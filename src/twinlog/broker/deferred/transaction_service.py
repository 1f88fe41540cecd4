"""Settles half messages: writes op records, and asks producers about what they left open.

Committing and rolling back happens in `transaction_handlers`; this service remembers the outcome for the check, which
runs every transactionCheckInterval while the broker is master.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from twinlog.base.system_names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from twinlog.broker.deferred import transaction_rules
from twinlog.broker.deferred.alarm import Alarm
from twinlog.broker.deferred.durable import until_flushed
from twinlog.broker.deferred.transaction_rules import CheckRules, OpBuffer, OpTracker, Verdict
from twinlog.broker.deferred.transaction_takeover import Steps, TakeOver, find_committed
from twinlog.broker.sends.message_rules import real_place, redelivery
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError
from twinlog.store.log.append import Draft
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.codes import RequestCode
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import CheckTransactionHeader
from twinlog.wire.message import Message, encode_message
from twinlog.wire.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext

log = get_logger(__name__)
SLICE_MESSAGES = 100
RETRY_MS = 1_000
FLUSH_WAIT_S = 15.0
OFFSET_LOST_BACK_MS_MIN = 600_000


class TransactionService:
    """The half and op queues of one broker."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._ops = OpBuffer()
        self._alarm = Alarm(ctx.clock_ms)
        self._trackers: dict[int, OpTracker] = {}
        self._progress: dict[int, int] = {}  # next half offset to look at, per queue
        self._reign = TakeOver(ctx, self._take_over)
        self.commits = 0
        self.rollbacks = 0

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write_ops(), name="write-op-records")
                tasks.create_task(self._check_regularly(), name="check-transactions")
        finally:
            self.step_down()

    def step_down(self) -> None:
        """Leave no finished half message without its op record: the next master may be a Java broker."""
        if self._reign.begun:
            self.flush_ops(self._ops.queues())

    # -- becoming master -----------------------------------------------------------------------

    @property
    def has_taken_over(self) -> bool:
        """Whether the outcome of every earlier transaction is known, so that others may be ended."""
        return self._reign.done

    async def take_over(self) -> None:
        """Wait until `has_taken_over`, or until this broker is not master any more."""
        await self._reign.finish()

    def _take_over(self) -> Steps:
        """Learn which half messages are finished."""
        self._trackers.clear()
        self._progress.clear()
        self._ops = OpBuffer()
        store, oldest_open = self._ctx.store, []
        for queue_id in self._half_queues():
            tracker = self._tracker(queue_id)
            yield from self._read_ops(queue_id, tracker)
            at, end = self._first_to_look_for(queue_id), store.max_offset(HALF_TOPIC, queue_id)
            while at < end and tracker.is_finished(at, at):
                at += 1
            unit = store.unit(HALF_TOPIC, queue_id, at) if at < end else None
            if unit is not None:
                oldest_open.append(unit[0])
        found: list[Message] = []

        def note(message: Message) -> None:
            tracker = self._tracker(message.queue_id)
            if not tracker.is_finished(message.queue_offset, transaction_rules.identity(message)):
                self._note_end(message, tracker)
                found.append(message)

        yield from find_committed(store, min(oldest_open, default=store.log_end), self._is_known, note)
        if found:
            log.info("transactions were committed whose op record was lost; it is written now", count=len(found))

    def _first_to_look_for(self, queue_id: int) -> int:
        """The first half message whose commit is looked for in the log.

        Where the group's offset is lost, old copies of half messages look open: they were written again, and no op
        record names them. A master writes each open one again in every round, and an op record within seconds. So what
        the last master left open stands in its last two rounds, and the whole log need not be searched.
        """
        store, settings, at = self._ctx.store, self._ctx.settings, self._half_progress(queue_id)
        if self._saved(HALF_TOPIC, queue_id) is not None:
            return at
        round_ms = (
            settings.transaction_check_interval_ms + settings.transaction_timeout_ms + transaction_rules.OP_INTERVAL_MS
        )
        since_ms = store.last_timestamp - max(2 * round_ms, OFFSET_LOST_BACK_MS_MIN)
        return max(at, store.search_offset(HALF_TOPIC, queue_id, since_ms))

    def _is_known(self, queue_id: int, half_offset: int) -> bool:
        tracker = self._trackers.get(queue_id)
        return tracker is not None and tracker.is_finished(half_offset, half_offset)

    # -- ending --------------------------------------------------------------------------------

    def is_ended(self, message: Message) -> bool:
        """Whether this half message, or another copy of it, was committed or rolled back before."""
        assert self._reign.done, "the caller has waited for the take-over"
        return self._tracker(message.queue_id).is_finished(message.queue_offset, transaction_rules.identity(message))

    def ended(self, message: Message, *, committed: bool) -> None:
        """This half message is done with; an op record will say so soon."""
        if committed:
            self.commits += 1
        else:
            self.rollbacks += 1
        self._note_end(message, self._tracker(message.queue_id))

    def _note_end(self, message: Message, tracker: OpTracker) -> None:
        now_ms = self._ctx.clock_ms()
        tracker.end(transaction_rules.identity(message))
        if self._ops.add(message.queue_id, message.queue_offset, now_ms):
            self.flush_ops([message.queue_id])
        else:
            self._alarm.set(now_ms + transaction_rules.OP_INTERVAL_MS)

    @property
    def open_count(self) -> int:
        """Half messages that nobody has decided on, as far as the last check and the answers since then tell."""
        store, count = self._ctx.store, 0
        for queue_id in self._half_queues():
            waiting = store.max_offset(HALF_TOPIC, queue_id) - self._half_progress(queue_id)
            count += max(waiting - self._tracker(queue_id).finished_count - len(self._ops.offsets(queue_id)), 0)
        return count

    async def _write_ops(self) -> None:
        while True:
            if self._ctx.is_master:
                await self._reign.finish()
            await self._alarm.wait()
            if self._ctx.is_master:
                self.flush_ops(self._ops.due(self._ctx.clock_ms()))

    def flush_ops(self, queue_ids: list[int]) -> None:
        """Write the op records of these queues; what cannot be written now stays for the next time."""
        for queue_id in queue_ids:
            now_ms = self._ctx.clock_ms()
            pairs = {
                names.TAGS: transaction_rules.OP_TAG,
                names.WAIT: "false",
                names.UNIQ_KEY: self._ctx.unique_ids.next(now_ms),
            }
            draft = Draft(
                OP_TOPIC,
                queue_id,
                transaction_rules.encode_op_body(self._ops.offsets(queue_id)),
                encode_properties(pairs),
                (self._ctx.settings.broker_ip1, self._ctx.settings.listen_port),
                now_ms,
            )
            if self._ctx.store.append(draft).ok:
                self._ops.written(queue_id)
            else:
                self._alarm.set(now_ms + RETRY_MS)
        self._ctx.settle()

    # -- checking back -------------------------------------------------------------------------

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._ctx.settings.transaction_check_interval_ms / 1000)
            if self._ctx.is_master:
                await self.check()

    async def check(self) -> None:
        """One round over all half queues."""
        await self._reign.finish()
        if not self._reign.done:
            return
        reign = self._ctx.reign
        for queue_id in self._half_queues():
            if self._ctx.is_master and self._ctx.reign == reign:
                await self._check_queue(queue_id, self._ctx.store.log_end, reign)

    async def _check_queue(self, queue_id: int, round_log_end: int, reign: int) -> None:
        """Look at a queue's half messages. Whoever steps down meanwhile appends nothing more, and commits nothing."""

        def over() -> bool:
            return not self._ctx.is_master or self._ctx.reign != reign

        store, tracker = self._ctx.store, self._tracker(queue_id)
        op_before = tracker.settled_offset
        self.flush_ops([queue_id] if self._ops.offsets(queue_id) else [])
        for _ in self._read_ops(queue_id, tracker):
            await asyncio.sleep(0)
            if over():
                return
        at = before = self._half_progress(queue_id)
        end, looked = store.max_offset(HALF_TOPIC, queue_id), 0
        while at < end and self._look(queue_id, at, tracker, round_log_end):
            tracker.passed(at)
            at += 1
            self._progress[queue_id] = at
            looked += 1
            if looked % SLICE_MESSAGES == 0:
                self._ctx.settle()
                await asyncio.sleep(0)
                if over():
                    return
        self._ctx.settle()
        if at == before and tracker.settled_offset == op_before:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT_S):
                await until_flushed(store, store.log_end)
        if over():
            return
        now_ms = self._ctx.clock_ms()
        if at != before:
            self._ctx.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, queue_id, at, now_ms)
        if tracker.settled_offset != op_before:
            self._ctx.offsets.commit(TRANSACTION_GROUP, OP_TOPIC, queue_id, tracker.settled_offset, now_ms)

    def _read_ops(self, queue_id: int, tracker: OpTracker) -> Iterator[None]:
        """Take in the op records written since the last round, by us or by whoever ran on this store before."""
        store, progress = self._ctx.store, self._half_progress(queue_id)
        end, read = store.max_offset(OP_TOPIC, queue_id), 0
        while tracker.next_read < end:
            op_offset = tracker.next_read
            message = self._message(OP_TOPIC, queue_id, op_offset)
            finished = transaction_rules.decode_op_body(message.body) if message is not None else []
            tracker.read(op_offset, finished, progress)
            read += 1
            if read % SLICE_MESSAGES == 0:
                yield

    def _look(self, queue_id: int, half_offset: int, tracker: OpTracker, round_log_end: int) -> bool:
        """Deal with one half message; False when the round ends here."""
        if tracker.is_finished(half_offset, half_offset):
            return True
        message = self._message(HALF_TOPIC, queue_id, half_offset)
        if message is None or tracker.is_finished(half_offset, transaction_rules.identity(message)):
            return True
        settings = self._ctx.settings
        rules = CheckRules(
            settings.transaction_timeout_ms,
            settings.transaction_checks_max,
            self._ctx.conf.store.reserved_hours * 3_600_000,
        )
        verdict = rules.judge(message, round_log_end, self._ctx.wall_ms())
        if verdict is Verdict.WAIT:
            return False
        if verdict is Verdict.GIVE_UP:
            return self._give_up(message)
        draft = transaction_rules.rewritten(message, verdict)
        stored = self._ctx.store.append(draft)
        if not stored.ok:
            log.warning("a half message cannot be written again; trying next round", status=stored.status.name)
            return False
        if verdict is Verdict.ASK:
            message.properties = decode_properties(bytes(draft.properties))
            message.queue_offset, message.physical_offset = stored.queue_offset, stored.physical_offset
            message.store_timestamp = stored.store_timestamp
            message.store_host = (settings.broker_ip1, settings.listen_port)
            self._ask(message)
        return True

    def _give_up(self, message: Message) -> bool:
        self._ctx.ensure_topic(CHECK_MAX_TOPIC, 1)
        stored = self._ctx.store.append(redelivery(message, CHECK_MAX_TOPIC, 0))
        if stored.ok:
            log.warning("a transaction was given up", unique_key=message.message_id, topic=CHECK_MAX_TOPIC)
        return stored.ok

    def _ask(self, message: Message) -> None:
        """Send CHECK_TRANSACTION_STATE to one live connection of the producer group, if there is one."""
        group = message.properties.get(names.PGROUP, "")
        client, place = self._ctx.clients.next_producer(group), real_place(message)
        if client is None or place is None:
            return
        key = message.properties.get(names.UNIQ_KEY)
        header = CheckTransactionHeader(
            topic=HALF_TOPIC,
            tran_state_table_offset=message.queue_offset,
            commit_log_offset=message.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=message.offset_message_id,
            broker_name=self._ctx.settings.broker_name,
        )
        body = encode_message(transaction_rules.check_body(message, *place))
        with contextlib.suppress(NetError):  # the next round asks again, perhaps another connection
            cast(Connection, client.connection).oneway(RequestCode.CHECK_TRANSACTION_STATE, encode_fields(header), body)

    def resume(self, message: Message) -> bool:
        """Begin anew with a message that was given up: back to the half queue, as if never checked."""
        pairs = {**message.properties, names.TRANSACTION_CHECK_TIMES: "0"}
        pairs.pop(names.TRAN_PREPARED_QUEUE_OFFSET, None)
        stored = self._ctx.store.append(redelivery(message, HALF_TOPIC, 0, pairs))
        self._ctx.settle()
        return stored.ok

    # -- inside --------------------------------------------------------------------------------

    def _half_queues(self) -> range:
        config = self._ctx.topics.get(HALF_TOPIC)
        return range(config.read_queue_nums if config is not None else 1)

    def _tracker(self, queue_id: int) -> OpTracker:
        tracker = self._trackers.get(queue_id)
        if tracker is None:
            tracker = self._trackers[queue_id] = OpTracker(self._start(OP_TOPIC, queue_id))
        return tracker

    def _half_progress(self, queue_id: int) -> int:
        store = self._ctx.store
        at = self._progress.get(queue_id)
        if at is None:
            at = self._start(HALF_TOPIC, queue_id)
        # Retention may have taken what was never settled.
        at = min(max(at, store.min_offset(HALF_TOPIC, queue_id)), store.max_offset(HALF_TOPIC, queue_id))
        self._progress[queue_id] = at
        return at

    def _start(self, topic: str, queue_id: int) -> int:
        """Where the group stands; Java's first start has no offset, and begins with the oldest message."""
        store, saved = self._ctx.store, self._saved(topic, queue_id)
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        return low if saved is None else min(max(saved, low), high)

    def _saved(self, topic: str, queue_id: int) -> int | None:
        saved = self._ctx.offsets.get(TRANSACTION_GROUP, topic, queue_id)
        return None if saved is None or saved < 0 else saved

    def _message(self, topic: str, queue_id: int, queue_offset: int) -> Message | None:
        unit = self._ctx.store.unit(topic, queue_id, queue_offset)
        return None if unit is None else self._ctx.store.message_at(unit[0], unit[1])
