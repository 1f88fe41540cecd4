"""The records of one range of a store, as scanned columns; anything else in it is an error or a warning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twinlog.spark.errors import BadRecord, DataLoss
from twinlog.spark.reading.stores.damage import damage_at
from twinlog.spark.reading.stores.log_ranges import StoreRange, first_record
from twinlog.spark.reading.stores.selection import Selection
from twinlog.store.log.segment import Segment
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import Stop
from twinlog.store.scan.walk import ends_segment
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


def read_range(
    wanted: StoreRange, selection: Selection, *, check_crc: bool = True, skips_damage: bool = False
) -> Iterator[ScannedRecords]:
    """The records that start in the range. Pages already read are released, so a worker's memory stays small.

    Damage is an error unless `skips_damage`, or unless all its owners are known and `selection` does not want them.
    """
    try:
        segment = wanted.segment.open()
    except FileNotFoundError as error:
        problem = "is gone: its broker deleted it, or the store was moved"
        if not skips_damage:
            raise DataLoss(f"segment {wanted.segment.path}", problem) from error
        log.warning("a segment is gone and is left out", segment=str(wanted.segment.path))
        return
    try:
        yield from _read(segment, wanted, selection, check_crc, skips_damage)
    finally:
        segment.close()


def _read(
    segment: Segment, wanted: StoreRange, selection: Selection, check_crc: bool, skips_damage: bool
) -> Iterator[ScannedRecords]:
    base, records_end = segment.base, wanted.segment.end
    position: int | None = wanted.begin
    if wanted.begin and not wanted.begins_record:
        position = first_record(segment.map, wanted.begin, wanted.end, records_end, base)
    while position is not None:
        stop, crossed = None, False
        for batch in scan(segment.map, position, records_end, base, check_crc=check_crc):
            stop, last = batch.stop, batch.position[-1] if len(batch) else -1
            if last >= wanted.end:
                crossed = True
                batch = batch.select(batch.position < wanted.end)
            if len(batch):
                yield batch
                segment.release_pages(int(batch.position[0]), int(batch.position[-1]))
            if crossed:
                return
        assert stop is not None
        if ends_segment(stop, records_end):
            return
        if wanted.wanted_end is not None and stop.position >= wanted.wanted_end:
            return
        # What is after the range's end belongs to the next range, which searches for its first record.
        if stop.position >= wanted.end and stop.is_checksum:
            return
        if skips_damage:
            log.warning("a damaged place is left out", **_place(wanted, stop))
        else:
            _check_damage(segment, wanted, selection, stop)
        position = first_record(segment.map, stop.position + 1, wanted.end, records_end, base)


def _check_damage(segment: Segment, wanted: StoreRange, selection: Selection, stop: Stop) -> None:
    """BadRecord for damage, unless all its owners are known and none is wanted."""
    damage = damage_at(segment, stop, wanted.segment.end, Path(wanted.store))
    if damage.all_owners_known and not selection.wants_any(damage.owners, wanted.broker_name):
        owners = sorted({topic for topic, _ in damage.owners})
        log.warning("a damaged place of another topic is left out", topics=owners, **_place(wanted, stop))
        return
    raise BadRecord(
        f"store {wanted.store} segment {wanted.segment.path.name} physical offset {damage.begin} to {damage.end}: "
        f"no valid record ({stop}), {damage.whose}; check it with `twinlog store verify`, or leave it out "
        "with failOnDataLoss=false (for a command: --option failOnDataLoss=false)"
    )


def _place(wanted: StoreRange, stop: Stop) -> dict[str, object]:
    place = wanted.segment.base + stop.position
    return {"store": wanted.store, "physical_offset": place, "reason": str(stop)}
