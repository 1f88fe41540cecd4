"""Delivers the messages of SCHEDULE_TOPIC_XXXX when they are due, and saves its progress.

A message is stored in its real queue before it counts as delivered: a crash may repeat some, and loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.broker.deferred.alarm import Alarm
from twinlog.broker.deferred.delay import LevelCursor, offset_to_resume, open_cursors
from twinlog.broker.deferred.durable import until_flushed
from twinlog.broker.deferred.parked_record import delivery, parked_at
from twinlog.broker.deferred.stamp_skew import StampSkew
from twinlog.broker.sends.parking import real_place
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.log.append import PutStatus
from twinlog.store.log.log_access import OnDisk
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.store.queues.consume_queue import Unit

log = get_logger(__name__)
RETRY_MS = 1_000
SLICE_MESSAGES = 200  # delivered in one go before other tasks run
NEVER_STORED = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


class DelayService:
    """One cursor per delay level, while the broker is master."""

    closed = False  # as a peer of `disk_work`

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._alarm = Alarm(ctx.clock_ms, moves=ctx.clock_moves)
        self._cursors: list[LevelCursor] = []
        self._unreadable: set[int] = set()  # levels whose next messages the disk does not return
        self._skew = StampSkew()
        self._was_replica = False  # until now

    def parked(self, due_ms: int) -> None:
        """The message that is appended next waits; it can be due at `due_ms`."""
        ctx = self._ctx
        self._skew.note(ctx.store.log_end, max(ctx.wall_ms(), ctx.store.last_timestamp), ctx.clock_ms())
        self._alarm.set(due_ms)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver(), name="deliver-delayed")
            tasks.create_task(self._persist(), name="save-delay-offsets")

    async def _deliver(self) -> None:
        while True:
            await self._ctx.until_confirmed()
            if not self._ctx.is_master:
                self._cursors, self._was_replica = [], True
            else:
                if not self._cursors:
                    self.load(took_over=self._was_replica)
                    self._was_replica = False
                more = True
                while more and self._ctx.is_master:  # a broker that steps down appends nothing more
                    if await self.load_due(self._ctx.clock_ms()):
                        await self._ctx.until_confirmed()
                        if not self._ctx.is_master:
                            break
                    more = self.deliver_due(self._ctx.clock_ms())
                    await asyncio.sleep(0)
                    await self._ctx.until_confirmed()
            await self._alarm.wait()

    def load(self, *, took_over: bool = False) -> None:
        """Set the cursors to the saved offsets, within what the queues still hold."""
        ctx, store = self._ctx, self._ctx.store
        levels = DelayLevels(ctx.conf.store.delay_levels).ms
        bounds = {
            level: (store.min_offset(SCHEDULE_TOPIC, level - 1), store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in levels
        }
        self._cursors = open_cursors(levels, ctx.delay_offsets.rows, bounds)
        wall_ms, now_ms = ctx.wall_ms(), ctx.clock_ms()  # in this order: a pause between them must not add to the lead
        self._skew = StampSkew(store.log_end, now_ms, wall_ms - now_ms)
        for cursor in self._cursors:
            if took_over:
                cursor.step_back(self._offset_to_resume(cursor, bounds[cursor.level][0]))
            saved = ctx.delay_offsets.get(cursor.level)
            if saved is not None and saved != cursor.next_offset:
                log.warning("delay offset corrected", level=cursor.level, saved=saved, now=cursor.next_offset)
                ctx.delay_offsets.update(cursor.level, cursor.next_offset, ctx.clock_ms())

    def _offset_to_resume(self, cursor: LevelCursor, queue_min: int) -> int:
        store = self._ctx.store

        def deliver_ms(queue_offset: int) -> int | None:
            unit = store.unit(SCHEDULE_TOPIC, cursor.queue_id, queue_offset)
            return None if unit is None else unit[2]

        return offset_to_resume(cursor.next_offset, queue_min, deliver_ms, store.last_timestamp)

    async def load_due(self, now_ms: int) -> bool:
        """Have a thread read what is due next and on disk only; whether there was any.

        A message that waits for hours is old when it is due. Read in the loop, it would hold up all requests; and one
        that the disk does not return would end the process. Its level waits, and is tried again.
        """
        store, loaded, unreadable = self._ctx.store, False, set[int]()
        for cursor in self._cursors:
            due = self._due_and_old(cursor, now_ms)
            offsets, sizes = [unit.physical_offset for unit in due], [unit.size for unit in due]
            try:
                if due:
                    store.log_in_memory().need(offsets, sizes)
            except OnDisk:
                loaded = True
                try:
                    await self._ctx.disk_work.run(self, partial(store.log_on_disk().need, offsets, sizes))
                except OSError as error:
                    unreadable.add(cursor.level)
                    if cursor.level not in self._unreadable:
                        text = "delayed messages cannot be read from the disk, and wait until they can"
                        log.error(text, level=cursor.level, physical_offset=offsets[0], error=str(error))
        self._unreadable = unreadable
        return loaded

    def _due_and_old(self, cursor: LevelCursor, now_ms: int) -> list[Unit]:
        """The messages of a level's next slice that are due, if the first of them was not written lately."""
        store = self._ctx.store
        if store.max_offset(SCHEDULE_TOPIC, cursor.queue_id) <= cursor.next_offset:
            return []
        first = next(iter(self._waiting(cursor, 1)), None)
        if first is None or first.physical_offset >= store.recent_from:
            return []
        units = self._waiting(cursor, SLICE_MESSAGES)
        return list(takewhile(lambda unit: self._stamped_ms(cursor, unit) <= now_ms, units))

    def deliver_due(self, now_ms: int) -> bool:
        """Deliver what is due, at most a slice of it; whether there is more. Sets the alarm for the rest."""
        room = SLICE_MESSAGES
        for cursor in self._cursors:
            if cursor.level in self._unreadable:
                self._alarm.set(now_ms + RETRY_MS)
                continue
            before = cursor.next_offset
            room -= self._deliver_level(cursor, now_ms, room)
            if cursor.next_offset != before:
                self._ctx.finish_appends()
                self._ctx.delay_offsets.update(cursor.level, cursor.next_offset, now_ms)
            if not room:
                return True
        return False

    def _deliver_level(self, cursor: LevelCursor, now_ms: int, count_max: int) -> int:
        """Deliver what is due of one level; returns how many messages were handled."""
        handled = 0
        while handled < count_max:
            before = handled
            for unit in self._waiting(cursor, count_max - handled):
                if unit.queue_offset != cursor.next_offset:
                    break
                if not self._deliver_unit(cursor, unit, now_ms):
                    return handled
                handled += 1
            if handled == before:
                if not self._skip_lost(cursor):
                    break
                handled += 1
        return handled

    def _waiting(self, cursor: LevelCursor, count: int) -> Iterable[Unit]:
        """Up to `count` messages of a level, in one read of its queue."""
        queue = self._ctx.store.queues.get(SCHEDULE_TOPIC, cursor.queue_id)
        return queue.units(cursor.next_offset, count) if queue is not None else ()

    def _skip_lost(self, cursor: LevelCursor) -> bool:
        """Move past messages that retention has deleted; whether there were any."""
        store, queue_id = self._ctx.store, cursor.queue_id
        queue_min, queue_max = store.min_offset(SCHEDULE_TOPIC, queue_id), store.max_offset(SCHEDULE_TOPIC, queue_id)
        lost = cursor.correct(queue_min, queue_max)
        if lost:
            log.error("retention deleted delayed messages", level=cursor.level, count=lost, next=queue_min)
        return bool(lost)

    def _deliver_unit(self, cursor: LevelCursor, unit: Unit, now_ms: int) -> bool:
        """Deliver the level's next message if it is due; False when there is nothing to do for now."""
        store, physical_offset = self._ctx.store, unit.physical_offset
        due_ms = cursor.due_ms(self._stamped_ms(cursor, unit), now_ms)
        if due_ms > now_ms:
            self._alarm.set(due_ms)
            return False
        message = parked_at(store, physical_offset, unit.size)
        place = real_place(message) if message is not None else None
        if message is None or place is None:
            log.error("a delayed message cannot be delivered", level=cursor.level, physical_offset=physical_offset)
            cursor.advance()
            return True
        stored = store.append(delivery(message, *place))
        if not stored.ok and stored.status not in NEVER_STORED:
            self._alarm.set(now_ms + RETRY_MS)
            return False
        if not stored.ok:
            log.error("a delayed message was refused", physical_offset=physical_offset, status=stored.status.name)
        cursor.advance()
        return True

    def _stamped_ms(self, cursor: LevelCursor, unit: Unit) -> int:
        """When a message is due by the stamp of its record."""
        return self._skew.due_ms(unit.physical_offset, unit.tags_code or 0, cursor.delay_ms)

    async def _persist(self) -> None:
        table = self._ctx.delay_offsets
        while True:
            await asyncio.sleep(self._ctx.conf.store.delay_offset_flush_interval_ms / 1000)
            pending, log_end = table.begin_save(), self._ctx.store.log_end
            if pending is None or not self._ctx.is_master:
                continue
            await until_flushed(self._ctx.store, log_end)
            try:
                await asyncio.to_thread(pending.write)
            except OSError as error:
                log.error("delay offsets cannot be written", file=table.file and table.file.path.name, error=error)
