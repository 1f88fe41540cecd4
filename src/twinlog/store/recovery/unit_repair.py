"""Queue units compared with the records they stand for, and written again where they are wrong.

Java does not check its consume queues: a unit with flipped bits gives garbage to every consumer that reads it. The log
has the truth, so recovery compares the units of all records that it scans.

A unit that differs from a record of its queue offset is not always wrong: after a topic was deleted and made again,
old records in the log have offsets that newer ones were given again. A unit is right if the record that it points at
has this queue and queue offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.segment import Segment
from twinlog.store.queues.consume_queue import ConsumeQueue, pack_unit
from twinlog.store.scan.record_columns import HEAD_TYPE, ScannedRecords, gather_heads
from twinlog.store.scan.replay import requests_of


def repair_units(
    queue: ConsumeQueue,
    batch: ScannedRecords,
    rows: np.ndarray,
    commit_log: CommitLog,
    delay_levels: DelayLevels,
    *,
    with_tags: bool = False,
) -> int:
    """Write the units of these records (all of this queue) again where they are wrong; returns how many.

    With tags, their tags codes are compared as well, for which all properties have to be read.
    """
    numbers = batch.queue_offset[rows]
    rows = rows[(numbers >= queue.min) & (numbers < queue.written)]
    if queue.ext is not None or not len(rows):
        return 0
    first = int(batch.queue_offset[rows].min())
    count = int(batch.queue_offset[rows].max()) - first + 1
    units = np.frombuffer(bytes(queue.read(first, count)), queue.UNIT_TYPE)
    if len(units) != count:
        return 0
    units = units[batch.queue_offset[rows] - first]
    differs = (units["physical_offset"] != batch.physical_offset[rows]) | (units["size"] != batch.size[rows])
    retagged = np.zeros(len(rows), bool)
    if with_tags:
        codes = np.array([one.tags_code for one in requests_of(batch.select(rows), delay_levels)], np.int64)
        retagged = ~differs & (units["tags_code"] != codes)
        differs |= retagged
    if not differs.any():
        return 0
    rows, units, retagged = rows[differs], units[differs], retagged[differs]
    heads = heads_at(commit_log, units["physical_offset"].astype(np.int64))
    wrong = (
        (heads["physical_offset"] != units["physical_offset"])
        | (heads["size"] != units["size"])
        | (heads["queue_id"] != queue.queue_id)
        | (heads["queue_offset"] != batch.queue_offset[rows])
        | retagged
    )
    for request in requests_of(batch.select(rows[wrong]), delay_levels):
        data = pack_unit(request.physical_offset, request.size, request.tags_code)
        at = request.queue_offset % queue.file_units * queue.UNIT_BYTES
        queue.files.write(queue.path_of(request.queue_offset), data, at, queue.file_bytes)
    if wrong.any():  # one of them may have been the last, from which the end of the queue is known
        queue.write()
        queue.recover()
    return int(np.count_nonzero(wrong))


def heads_at(commit_log: CommitLog, offsets: np.ndarray) -> np.ndarray:
    """The fixed parts of the records at these offsets; zeros where the log has none."""
    heads = np.zeros(len(offsets), HEAD_TYPE)
    for segment, rows in rows_by_segment(commit_log, offsets):
        inside = rows[offsets[rows] - segment.base <= segment.size - HEAD_TYPE.itemsize]
        heads[inside] = gather_heads(memoryview(segment.map), offsets[inside] - segment.base, segment.size)
    return heads


def rows_by_segment(commit_log: CommitLog, offsets: np.ndarray) -> Iterator[tuple[Segment, np.ndarray]]:
    """Each segment with the numbers of the offsets that lie in it."""
    for segment in commit_log.segments:
        rows = np.flatnonzero((offsets >= segment.base) & (offsets < segment.end))
        if len(rows):
            yield segment, rows
