"""Delivers timer messages at their time, and saves its progress.

Pending messages stay in the wheel queue. Memory holds only their offsets, so a start reads the queue again from the
lowest pending one. A message that waits for long is parked again before retention could delete its record.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.system_names import TIMER_TOPIC
from twinlog.broker.deferred.alarm import Alarm
from twinlog.broker.deferred.delay_service import NEVER_STORED
from twinlog.broker.deferred.durable import until_flushed
from twinlog.broker.deferred.timer_file import TimerFile
from twinlog.broker.deferred.timer_table import TimerTable
from twinlog.broker.sends.parking import real_place, redelivery
from twinlog.broker.sends.timer_rules import cancelled_key, message_key, out_time
from twinlog.metadata.timer_check import JavaCheckpoint, TimerProgress
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.bodies import DataVersion

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.wire.message import Message

log = get_logger(__name__)
HOUR_MS = 3_600_000
RETRY_MS = 1_000
SLICE_MESSAGES = 200
SAVE_S = 1.0
ROLL_S = 60.0
ROLL_AGE_MS_MAX = 24 * HOUR_MS
JAVA_ROLL_MS = 48 * HOUR_MS  # Java parks again what waits longer than this, so nothing older can be pending


class TimerService:
    """The timers of one broker, while it is master and timerWheelEnable is true."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._alarm = Alarm(ctx.clock_ms, moves=ctx.clock_moves)
        self._table: TimerTable | None = None
        self._file = TimerFile(ctx.conf.store)
        self._saved_mark: tuple[int, int, int] | None = None
        self._version = DataVersion(timestamp=ctx.clock_ms())
        self._moves = 0  # messages that left the table
        self.enqueued = 0
        self.dequeued = 0

    def parked(self, due_ms: int) -> None:
        """A message that is parked can be due at `due_ms`."""
        self._alarm.set(due_ms)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver(), name="deliver-timers")
            tasks.create_task(self._persist(), name="save-timer-progress")
            tasks.create_task(self._roll(), name="roll-timers")

    # -- delivering ----------------------------------------------------------------------------

    async def _deliver(self) -> None:
        while True:
            await self._ctx.until_confirmed()
            if not self._ctx.is_master or not self._ctx.conf.store.timer_enabled:
                self._table = None
            else:
                if self._table is None:
                    self._table = await self.load()
                more = True
                while more and self._ctx.is_master:  # a broker that steps down appends nothing more
                    more = self.read_new() or self.deliver_due(self._ctx.clock_ms())
                    await asyncio.sleep(0)
                    await self._ctx.until_confirmed()
            await self._alarm.wait()

    async def load(self) -> TimerTable:
        """The pending messages, by the progress in timercheck; without a file every message in the queue is pending."""
        ctx, store = self._ctx, self._ctx.store
        progress = self._file.load()
        queue_min, queue_max = store.min_offset(TIMER_TOPIC, 0), store.max_offset(TIMER_TOPIC, 0)
        start = progress.low_offset
        if start is None:
            longest_ms = max(ctx.conf.store.timer_delay_seconds_max * 1000, JAVA_ROLL_MS) + HOUR_MS
            start = store.search_offset(TIMER_TOPIC, 0, progress.read_time_ms - longest_ms)
        start = min(max(start, queue_min), queue_max)
        table = TimerTable(ctx.conf.store.timer_precision_ms, read_time_ms=progress.read_time_ms, queue_offset=start)
        more = table.queue_offset < progress.queue_offset
        while more:
            more = self._read_slice(table, progress.queue_offset, progress.read_time_ms)
            await asyncio.sleep(0)
        if len(table):
            log.info("timer messages are pending", count=len(table), from_offset=start, to_offset=table.queue_offset)
        return table

    def read_new(self) -> bool:
        """Read what was parked since; whether there is more."""
        assert self._table is not None
        return self._read_slice(self._table, self._ctx.store.max_offset(TIMER_TOPIC, 0), None)

    def _read_slice(self, table: TimerTable, end: int, delivered_before_ms: int | None) -> bool:
        """Read the queue towards `end`, without slots before `delivered_before_ms`; whether there is more."""
        store = self._ctx.store
        end = min(end, store.max_offset(TIMER_TOPIC, 0))
        stop = min(end, table.queue_offset + SLICE_MESSAGES)
        for queue_offset in range(table.queue_offset, stop):
            message = self._message(queue_offset)
            out_ms = out_time(message.properties) if message is not None else None
            if message is None or out_ms is None:
                log.error("a timer message has no time or no record", queue_offset=queue_offset)
                continue
            if delivered_before_ms is not None and table.slot_of(out_ms) < delivered_before_ms:
                continue
            self._note_replacement(table, message, queue_offset)
            table.add(queue_offset, out_ms)
            self.enqueued += 1
        table.queue_offset = max(stop, table.queue_offset)
        return table.queue_offset < end

    def _note_replacement(self, table: TimerTable, message: Message, queue_offset: int) -> None:
        cancelled = cancelled_key(message.properties)
        if cancelled is not None:
            table.replace(cancelled, queue_offset)
        elif names.TIMER_ROLL_TIMES in message.properties:
            key = message_key(message.properties)
            if key is not None:
                table.replace(key, queue_offset)

    def deliver_due(self, now_ms: int) -> bool:
        """Deliver what is due, at most a slice of it; whether there is more. Sets the alarm for the rest."""
        table = self._table
        assert table is not None
        delivered = 0
        while (queue_offset := table.first_due(now_ms)) is not None and delivered < SLICE_MESSAGES:
            if not self._deliver_one(table, queue_offset, now_ms):
                self._alarm.set(now_ms + RETRY_MS)
                self._ctx.finish_appends()
                return False
            table.delivered()
            delivered += 1
            self._moves += 1
        if delivered:
            self._ctx.finish_appends()
        if table.first_due(now_ms) is not None:
            return True
        table.caught_up(now_ms)
        if table.wake_ms is not None:
            self._alarm.set(table.wake_ms)
        return False

    def _deliver_one(self, table: TimerTable, queue_offset: int, now_ms: int) -> bool:
        """Store one due message in its real queue, or drop it for good; False when it must be tried again."""
        message = self._message(queue_offset)
        if message is None:
            log.error("retention deleted a timer message before its time", queue_offset=queue_offset)
            return True
        pairs = message.properties
        key, cancelled = message_key(pairs), cancelled_key(pairs)
        if cancelled is not None:  # it took effect when it was read
            table.forget_replacement(cancelled, queue_offset)
            return True
        if table.is_replaced(key, queue_offset):
            return True
        place = real_place(message)
        if place is None:
            log.error("a timer message names no queue to deliver it to", queue_offset=queue_offset)
            return True
        dated = {**pairs, names.TIMER_ENQUEUE_MS: str(message.store_timestamp), names.TIMER_DEQUEUE_MS: str(now_ms)}
        stored = self._ctx.store.append(redelivery(message, *place, dated))
        if not stored.ok and stored.status not in NEVER_STORED:
            return False
        if not stored.ok:
            log.error("a timer message was refused", queue_offset=queue_offset, status=stored.status.name)
        if key is not None:
            table.forget_replacement(key, queue_offset)
        self.dequeued += 1
        return True

    def _message(self, queue_offset: int) -> Message | None:
        unit = self._ctx.store.unit(TIMER_TOPIC, 0, queue_offset)
        return None if unit is None else self._ctx.store.message_at(unit[0], unit[1])

    # -- parking again -------------------------------------------------------------------------

    async def _roll(self) -> None:
        while True:
            await asyncio.sleep(ROLL_S)
            await self._ctx.until_confirmed()
            more = True
            while more and self._table is not None and self._ctx.is_master:
                more = self.roll(self._ctx.clock_ms())
                await asyncio.sleep(0)
                await self._ctx.until_confirmed()

    def roll(self, now_ms: int) -> bool:
        """Park old messages again, at most a slice of them; whether there are more."""
        table, store = self._table, self._ctx.store
        assert table is not None
        age_ms = min(ROLL_AGE_MS_MAX, max(self._ctx.conf.store.reserved_hours * HOUR_MS // 2, HOUR_MS))
        if not len(table):
            return False
        young = store.search_offset(TIMER_TOPIC, 0, self._ctx.wall_ms() - age_ms)
        old = table.before(min(young, table.queue_offset))
        for queue_offset in old[:SLICE_MESSAGES]:
            message = self._message(queue_offset)
            # A copy behind the message that cancelled it would come alive again.
            if message is not None and not table.is_replaced(message_key(message.properties), queue_offset):
                times = message.properties.get(names.TIMER_ROLL_TIMES, "0")
                pairs = {**message.properties, names.TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1)}
                if not store.append(redelivery(message, TIMER_TOPIC, 0, pairs)).ok:
                    return False
            table.drop_before(queue_offset + 1)
        self._ctx.finish_appends()
        self._alarm.set(now_ms)
        return len(old) > SLICE_MESSAGES

    # -- progress ------------------------------------------------------------------------------

    async def _persist(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            progress, log_end = self.progress(), self._ctx.store.log_end
            if progress is None:
                continue
            try:
                await until_flushed(self._ctx.store, log_end)
            except asyncio.CancelledError:
                self._saved_mark = None  # nothing is saved yet: `save` does it when the run ends
                raise
            try:
                await asyncio.to_thread(self._file.save, progress, self._ctx.clock_ms())
            except OSError as error:
                self._saved_mark = None
                log.error("timer progress cannot be written; trying again", error=str(error))

    def progress(self) -> TimerProgress | None:
        """What is to be saved; None when it is saved already."""
        table = self._table
        if table is None:
            return None
        low, end = table.low_offset, table.queue_offset
        mark = (end, low, self._moves)
        if mark == self._saved_mark:
            return None  # only time has passed
        self._saved_mark = mark
        return TimerProgress(table.delivered_before_ms, end, low, self._file.saved.counter + 1)

    def save(self) -> None:
        """Save the progress at the end of a run, once the log is flushed; a disk that refuses is logged."""
        progress = self.progress()
        if progress is None:
            return
        try:
            self._file.save(progress, self._ctx.clock_ms())
        except OSError as error:
            log.error("timer progress cannot be written; some timers will come twice", error=str(error))

    # -- for replicas and statistics -----------------------------------------------------------

    def checkpoint(self) -> bytes:
        """56 bytes for a replica: what it may count as delivered."""
        table, saved, version = self._table, self._file.saved, self._version
        read_ms, end = saved.read_time_ms, saved.queue_offset
        if table is not None:
            read_ms, end = table.delivered_before_ms, table.queue_offset
        return JavaCheckpoint(read_ms, 0, end, end, version.state_version, version.timestamp, saved.counter).encode()

    def metrics(self) -> bytes:
        """JSON for a replica; counts per topic are not kept, so there are none."""
        return msgspec.json.encode({"dataVersion": self._version, "timingCount": {}})

    def adopt_body(self, body: bytes) -> bool:
        """On a replica, save the master's progress; whether the file changed."""
        return self._file.adopt(body, self._ctx.clock_ms(), delivers=self._table is not None)

    @property
    def pending(self) -> int:
        return len(self._table) if self._table is not None else 0

    @property
    def read_behind_ms(self) -> int:
        """How late delivery is."""
        table = self._table
        if table is None or table.wake_ms is None:
            return 0
        return max(self._ctx.clock_ms() - table.wake_ms, 0)

    @property
    def offset_behind(self) -> int:
        """How many parked messages were not read yet."""
        if self._table is None:
            return 0
        return max(self._ctx.store.max_offset(TIMER_TOPIC, 0) - self._table.queue_offset, 0)
