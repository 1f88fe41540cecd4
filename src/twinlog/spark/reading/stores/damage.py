"""Whose records a damaged stretch of a log held, as far as the store itself can tell.

The consume queue of a topic names the place and size of each of its records. If the records that queues name fill a
damaged stretch without a gap, all its owners are known. A gap may be a record of any topic: a queue that its broker
still holds in memory, that was deleted with its topic, or that was not copied. A record whose body is damaged names its
topic itself; the damage may go on there, so only a name that the store knows is believed.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twinlog.metadata.errors import MetadataError
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.topics import FILE_NAME, TopicsFile
from twinlog.spark.reading.stores.log_ranges import first_record
from twinlog.store.log.segment import Segment
from twinlog.store.offline.store_files import stored_queues
from twinlog.store.scan.record_columns import columns_at
from twinlog.store.scan.stop import Stop, StopReason
from twinlog.wire.record_layout import BLANK_BYTES, is_blank

_NAMED_MAX = 3
Owner = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of a log that are no record, from one physical offset to another."""

    begin: int
    end: int
    owners: frozenset[Owner]
    is_whole: bool  # every byte has a known owner

    @property
    def whose(self) -> str:
        named = [f"topic {topic} queue {queue_id}" for topic, queue_id in sorted(self.owners)]
        more = [f"{len(named) - _NAMED_MAX} more queues"] if len(named) > _NAMED_MAX else []
        known = ", ".join((*named[:_NAMED_MAX], *more))
        if self.is_whole:
            return f"of {known}"
        return f"of {known} and others: no consume queue tells whose" if known else "no consume queue tells whose it is"


def damage_at(segment: Segment, stop: Stop, records_end: int, root: Path) -> DamagedRange:
    """The stretch that begins where a walk stopped, up to the next record of the segment."""
    behind = first_record(segment.map, stop.position + 1, records_end, records_end, segment.base)
    begin = segment.base + stop.position
    end = segment.base + (records_end if behind is None else behind)
    owners: set[Owner] = set()
    pieces: set[tuple[int, int]] = set()
    for queue in stored_queues(root):
        units = queue.pointing_into(begin, end)
        if len(units):
            owners.add((queue.topic, queue.queue_id))
            pieces.update(zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True))
    if stop.reason is StopReason.CRC:
        head, _ = columns_at(memoryview(segment.map), np.array([stop.position]), records_end, segment.base, True)
        topic = head.topics[int(head.topic_number[0])]
        if topic in _known_topics(root):
            owners.add((topic, int(head.queue_id[0])))
            pieces.add((begin, int(head.size[0])))
    known_to = begin
    for place, size in sorted(pieces):
        if place == known_to:
            known_to += size
    is_whole = known_to == end or (known_to > begin and _is_blank(segment.map, known_to - segment.base, records_end))
    return DamagedRange(begin, end, frozenset(owners), is_whole)


def _known_topics(root: Path) -> set[str]:
    """The topics that have a queue on disk, or stand in the store's table."""
    found = {queue.topic for queue in stored_queues(root)}
    with contextlib.suppress(OSError, MetadataError):
        found.update(decode_json((root / "config" / FILE_NAME).read_bytes(), TopicsFile).topic_config_table or {})
    return found


def _is_blank(buffer: mmap.mmap, position: int, end: int) -> bool:
    """Whether the unused end of a segment begins here."""
    return position + BLANK_BYTES <= end and is_blank(buffer[position : position + BLANK_BYTES])
