"""Reading old messages one by one, after a check has shown that something among them is damaged.

A damaged record, or one that a damaged queue unit points at, is left out; the next offset is behind it. A unit of a
message that was lost earlier points at a neighbour (see `quarantine`): that is left out as well, since the neighbour
has a unit of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.store.errors import UnderRepair
from twinlog.store.log.checked_log import are_whole, is_whole, next_of_queue
from twinlog.store.queues.batch_consume_queue import BatchConsumeQueue
from twinlog.store.queues.read import ReadResult, ReadStatus

if TYPE_CHECKING:
    from twinlog.store.queues.queue_table import Queue

OnDamage = Callable[[str, int, int, int], None]
"""called with topic, queue id, queue offset, and the physical offset in the unit"""


def is_sound(queue: Queue, queue_offset: int, result: ReadResult, *, filtered: bool) -> bool:
    """Whether what was read from `queue_offset` on consists of whole records, those that the units stand for."""
    if isinstance(queue, BatchConsumeQueue):
        return all(map(are_whole, result.buffers))
    if not filtered and result.count != result.next_offset - queue_offset:
        return False
    low: int | None = queue_offset
    for window in result.buffers:
        low = next_of_queue(window, queue.queue_id, low, result.next_offset if filtered else low)
        if low is None:
            return False
    return filtered or low == result.next_offset


def read_carefully(
    queue: Queue,
    queue_offset: int,
    read_one: Callable[[int], ReadResult],
    *,
    count_max: int,
    bytes_max: int,
    units_max: int,
    log_end: int,
    on_damage: OnDamage,
) -> ReadResult:
    """What a read from `queue_offset` on returns, without damaged records; `read_one` reads the next at an offset.

    If `on_damage` raises UnderRepair, the read ends before that record, and is to be repeated there.
    """
    buffers: list[memoryview] = []
    total, at, end = 0, queue_offset, min(queue.max_offset, queue_offset + max(units_max, count_max))
    while at < end and len(buffers) < count_max:
        one = read_one(at)
        is_own = one.status is ReadStatus.FOUND and _is_own(queue, one.next_offset - 1, one)
        try:
            _note_passed(queue, at, one, log_end, on_damage)
            if one.status is ReadStatus.FOUND and not is_own:
                unit = queue.unit(number := one.next_offset - 1)
                on_damage(queue.topic, queue.queue_id, number, -1 if unit is None else unit.physical_offset)
        except UnderRepair:
            if not buffers:
                raise
            break
        if one.status is not ReadStatus.FOUND:
            if one.next_offset <= at:
                break
            at = one.next_offset
            continue
        if total and total + one.size > bytes_max:
            break
        if is_own:
            buffers.append(one.buffers[0])
            total += one.size
        at = one.next_offset
    status = ReadStatus.FOUND if buffers else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(status, at, queue.min_offset, queue.max_offset, buffers, len(buffers), total)


def _note_passed(queue: Queue, at: int, one: ReadResult, log_end: int, on_damage: OnDamage) -> None:
    """Report units that a read from `at` on passed over because they point to no place of the log."""
    if isinstance(queue, BatchConsumeQueue):
        return
    for unit in queue.units(at, one.next_offset - at - (one.status is ReadStatus.FOUND)):
        if unit.physical_offset < 0 or unit.size <= 0 or unit.physical_offset + unit.size > log_end:
            on_damage(queue.topic, queue.queue_id, unit.queue_offset, unit.physical_offset)


def _is_own(queue: Queue, number: int, one: ReadResult) -> bool:
    """Whether this is the whole record of the message with that number."""
    record = one.buffers[0]
    if len(one.buffers) != 1 or not is_whole(record):
        return False
    return isinstance(queue, BatchConsumeQueue) or next_of_queue(record, queue.queue_id, number, number) is not None
