"""Damaged messages come back from a twin: another store, or another broker, whose log has the same bytes.

    damaged places     ranges of the log without valid records, and those that recovery replaced by fillers
    the twin's bytes   must be whole records that fill the range exactly, in a log that has our records beside the range
    the log            gets them, after its own bytes are in the quarantine; a tail that was cut off is appended again
    queues             units of these records, and all others that do not agree with the log, are written again
    index              is built again if it does not agree with the log

The store is open for writing meanwhile, and nobody else has it. What the twin does not have stays as it is. A crash
in between leaves damage that the next start or the next repair finds again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from twinlog.base.atomic_file import replace_file
from twinlog.store.log.checked_log import is_whole
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.store_files import stored_index_files
from twinlog.store.offline.verify import VerifyReport, verify_index
from twinlog.store.queues.consume_queue import ConsumeQueue
from twinlog.store.recovery.quarantine import QUARANTINE_TOPIC, Damage, save_bytes
from twinlog.store.recovery.unit_repair import repair_units
from twinlog.store.scan.column_batch import ColumnBatch
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import StopReason
from twinlog.store.scan.walk import Hole, walk_log
from twinlog.wire.message import decode_message
from twinlog.wire.record_layout import BLANK_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC
from twinlog.wire.values.sys_flag import TRANSACTION_HIDDEN

Fetch = Callable[[int, int], bytes | None]
"""the twin's bytes from one physical offset to another, or None"""


@dataclass(slots=True)
class RepairReport:
    """What was damaged, and what came back."""

    damaged: list[tuple[int, int]] = field(default_factory=list)
    restored: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)  # the twin does not have them
    records: int = 0
    units: int = 0
    index_rebuilt: bool = False


def repair_store(store: MessageStore, fetch: Fetch | None) -> RepairReport:
    """Bring back what is damaged, from the twin if there is one; then make the queues agree with the log."""
    report = RepairReport()
    for begin, end in damaged_ranges(store):
        report.damaged.append((begin, end))
        data = fetch(begin, end) if fetch is not None and _is_twin(store, begin, end, fetch) else None
        records = None if data is None else restore_range(store, begin, end, data)
        if records is None:
            report.missing.append((begin, end))
        else:
            report.restored.append((begin, end))
            report.records += records
    if fetch is not None:
        _restore_tail(store, fetch, report)
    for found in walk_log(store.commit_log):
        if isinstance(found, ScannedRecords):
            report.units += _repair_queues(store, found)
    store.queues.files.flush()
    report.index_rebuilt = _rebuild_index(store, lost_messages=bool(report.missing))
    return report


def damaged_ranges(store: MessageStore) -> Iterator[tuple[int, int]]:
    """Ranges of the log that hold no valid record, or fillers in the place of damaged ones; in order."""
    found = {(one.begin, one.end) for one in walk_log(store.commit_log) if isinstance(one, Hole)}
    for note in (store.root / "quarantine").glob("*.json"):
        text = json.loads(note.read_text())
        begin = int(text["physical_offset"])
        if text["action"].startswith("replaced") and store.log_start <= begin and not _is_restored(store, note):
            found.add((begin, begin + int(text["size"])))
    ranges: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        for segment, first, last in store.commit_log.ranges(begin, end):
            ranges.append((segment.base + first, segment.base + last))
    yield from ranges


def restore_range(store: MessageStore, begin: int, end: int, data: bytes) -> int | None:
    """Write the twin's bytes over a damaged range of one segment, durably; returns the number of records.

    None if the twin's bytes are not whole records that fill the range.
    """
    segment = store.commit_log.segment_at(begin)
    if segment is None or len(data) != end - begin or not _are_records(data, begin, end == segment.end):
        return None
    note = store.root / "quarantine" / f"{begin:020d}-{end:020d}.json"
    if not note.exists():  # else the bytes that were damaged are there, and fillers stand in the log
        save_bytes(store.root, store.commit_log, Damage(begin, end, "found by a repair"))
    first = begin - segment.base
    segment.secure()
    segment.map[first : first + len(data)] = data
    segment.flush()
    text = json.loads(note.read_text()) | {"action": "restored from its twin"}
    replace_file(note, [f"{json.dumps(text, indent=2)}\n".encode()])
    records = 0
    for batch in scan(segment.map, first, first + len(data), segment.base):
        if len(batch):
            records += len(batch)
            _repair_queues(store, batch)
    store.note_repair(begin)
    return records


def _restore_tail(store: MessageStore, fetch: Fetch, report: RepairReport) -> None:
    """Append the records that a start has cut off as torn, if nothing was written after that and the twin has them."""
    begin = store.log_end
    for note in (store.root / "quarantine").glob(f"{begin:020d}-*.json"):
        text = json.loads(note.read_text())
        end = begin + int(text["size"])
        is_cut = text["action"].startswith("cut off") and _is_twin(store, begin, end, fetch)
        data = fetch(begin, end) if is_cut else None
        if data is None or len(data) != end - begin or not _are_records(data, begin, False):
            continue
        report.damaged.append((begin, end))
        report.restored.append((begin, end))
        role = store.role
        store.change_role("SLAVE")
        store.append_raw(begin, data)
        report.records += store.dispatch_pending()
        store.change_role(role)
        return


def _is_twin(store: MessageStore, begin: int, end: int, fetch: Fetch) -> bool:
    """Whether the other log has our records around the range, as far as one of them is there in both.

    Records of another broker may have the same sizes, and then would fill the range as well.
    """
    segment = store.commit_log.segment_at(begin) or store.commit_log.segment_at(begin - 1)
    for at in (end, segment.base if segment is not None else begin, store.last_record_offset):
        if at is None or begin <= at < end or not store.log_start <= at < store.log_end:
            continue
        record = store.commit_log.record(at)
        if record is None or not is_whole(record) or decode_message(record).topic == QUARANTINE_TOPIC:
            continue
        other = fetch(at, at + len(record))
        if other is not None:
            return other == record
    return True


def log_source(commit_log: CommitLog) -> Fetch:
    """The bytes of another log."""

    def fetch(begin: int, end: int) -> bytes | None:
        found = commit_log.slice(begin, end - begin)
        return None if found is None else bytes(found)

    return fetch


def _rebuild_index(store: MessageStore, *, lost_messages: bool) -> bool:
    """Build the index again from the log, if one of its files does not agree with it."""
    index, settings = store.index, store.settings
    if index is None:
        return False
    store.flush_queues()
    found = VerifyReport(log_start=store.log_start, log_end=store.log_end, lost_messages=lost_messages)
    for file in stored_index_files(store.root, settings.index_slots, settings.index_entries):
        verify_index(store.commit_log, file, found, unfinished=False)
    if found.ok:
        return False
    index.delete_all()
    for batch in walk_log(store.commit_log):
        if isinstance(batch, ScannedRecords):
            index.dispatch(ColumnBatch(batch, store.delay_levels))
    store.flush_queues()
    return True


def _are_records(data: bytes, base: int, ends_segment: bool) -> bool:
    at, stop = 0, None
    for batch in scan(data, 0, len(data), base):
        if len(batch):
            at = int(batch.position[-1] + batch.size[-1])
        stop = batch.stop
    if at == len(data):
        return True
    if not ends_segment or len(data) - at < BLANK_BYTES or stop is None or stop.reason is not StopReason.BLANK:
        return False
    return SIZE_AND_MAGIC.unpack_from(data, at) == (len(data) - at, MAGIC_BLANK)


def _repair_queues(store: MessageStore, batch: ScannedRecords) -> int:
    """Units of these records that do not agree with them are written again; returns how many."""
    keys = batch.topic_number << 32 | batch.queue_id.astype(np.int64) & 0xFFFFFFFF
    queued = batch.sys_flag & TRANSACTION_HIDDEN == 0
    count = 0
    for key in np.unique(keys[queued]).tolist():
        rows = np.flatnonzero(queued & (keys == key))
        queue = store.queues.get(batch.topics[int(batch.topic_number[rows[0]])], int(batch.queue_id[rows[0]]))
        if isinstance(queue, ConsumeQueue):
            count += repair_units(queue, batch, rows, store.commit_log, store.delay_levels, with_tags=True)
    return count


def _is_restored(store: MessageStore, note: Path) -> bool:
    """Whether a later repair of the same place has brought its records back, in one piece or in several."""
    begin, _, end = note.stem.partition("-")
    pieces = [
        json.loads(other.read_text())
        for other in note.parent.glob("*.json")
        if int(begin) <= int(other.stem.partition("-")[0]) < int(end)
    ]
    return sum(int(one["size"]) for one in pieces if one["action"].startswith("restored")) >= int(end) - int(begin)
