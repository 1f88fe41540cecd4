"""Which topics and queues own the records in a damaged range of a log, as far as the store shows it.

The consume queue of a topic holds the offset and size of each of its records. If the records of the queues fill a
damaged range without a gap, all its owners are known. A gap may be a record of any topic: its queue may be only in the
broker's memory, deleted with its topic, or not copied. A record with a damaged body names its topic itself. The damage
may include that name, so it counts only if the store knows such a topic.
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
from twinlog.store.scan.stop import Stop
from twinlog.wire.record_layout import BLANK_BYTES, is_blank

_OWNERS_SHOWN_MAX = 3
Owner = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of a log that are not valid records: physical offsets [begin, end)."""

    begin: int
    end: int
    owners: frozenset[Owner]
    all_owners_known: bool

    @property
    def whose(self) -> str:
        named = [f"topic {topic} queue {queue_id}" for topic, queue_id in sorted(self.owners)]
        more = [f"{len(named) - _OWNERS_SHOWN_MAX} more queues"] if len(named) > _OWNERS_SHOWN_MAX else []
        known = ", ".join((*named[:_OWNERS_SHOWN_MAX], *more))
        if self.all_owners_known:
            return f"of {known}"
        return f"of {known} and unknown others" if known else "of unknown owners (no consume queue refers to it)"


def damage_at(segment: Segment, stop: Stop, records_end: int, root: Path) -> DamagedRange:
    """The range from where a scan stopped up to the next record of the segment."""
    after = first_record(segment.map, stop.position + 1, records_end, records_end, segment.base)
    begin = segment.base + stop.position
    end = segment.base + (records_end if after is None else after)
    owners: set[Owner] = set()
    pieces: set[tuple[int, int]] = set()
    for queue in stored_queues(root):
        units = queue.pointing_into(begin, end)
        if len(units):
            owners.add((queue.topic, queue.queue_id))
            pieces.update(zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True))
    if stop.is_checksum:
        head, _ = columns_at(memoryview(segment.map), np.array([stop.position]), records_end, segment.base, True)
        topic = head.topics[int(head.topic_number[0])]
        if topic in _known_topics(root):
            owners.add((topic, int(head.queue_id[0])))
            pieces.add((begin, int(head.size[0])))
    known_to = begin
    for place, size in sorted(pieces):
        if place == known_to:
            known_to += size
    all_owners_known = known_to == end or (
        known_to > begin and _is_blank(segment.map, known_to - segment.base, records_end)
    )
    return DamagedRange(begin, end, frozenset(owners), all_owners_known)


def _known_topics(root: Path) -> set[str]:
    """The topics that have a queue on disk or are in the store's topic table."""
    found = {queue.topic for queue in stored_queues(root)}
    with contextlib.suppress(OSError, MetadataError):
        found.update(decode_json((root / "config" / FILE_NAME).read_bytes(), TopicsFile).topic_config_table or {})
    return found


def _is_blank(buffer: mmap.mmap, position: int, end: int) -> bool:
    """Whether the unused end of a segment begins here."""
    return position + BLANK_BYTES <= end and is_blank(buffer[position : position + BLANK_BYTES])
