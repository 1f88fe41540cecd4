"""What is built from the log, compared with it: tags codes, index entries and their chains; and files beside it.

Units and entries only say where a record is and what a reader looks for. So what they say is computed again from the
records, in columns where the records are alike (see `column_batch`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from twinlog.base.json_checksum import check_json, is_changed
from twinlog.base.safe_files import read_file
from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.index.request_keys import hash_requests
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX
from twinlog.store.recovery.unit_repair import rows_by_segment
from twinlog.store.scan.column_batch import ColumnBatch
from twinlog.store.scan.record_columns import ScannedRecords, columns_at
from twinlog.wire.values.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

_DELAYS = DelayLevels("1s")  # no delayed message is decoded here


def records_at(commit_log: CommitLog, offsets: np.ndarray) -> Iterator[tuple[np.ndarray, ScannedRecords]]:
    """(rows, records) for records at these offsets, as far as they are records."""
    for segment, rows in rows_by_segment(commit_log, offsets):
        batch, _ = columns_at(memoryview(segment.map), offsets[rows] - segment.base, segment.size, segment.base, False)
        yield rows[: len(batch)], batch


def wrong_tags(topic: str, batch: ScannedRecords, codes: np.ndarray, *, has_ext: bool) -> np.ndarray:
    """Which of these records have another tags code than the queue's units say.

    With an extension of the queue, very low numbers are places in that.
    """
    if topic == SCHEDULE_TOPIC:  # there it is the time of delivery, which follows from the broker's delay levels
        return np.zeros(len(batch), bool)
    requests = ColumnBatch(batch, _DELAYS)
    columns = requests.columns
    expected = columns.tags_code if columns is not None else np.array([one.tags_code for one in requests], np.int64)
    return (expected != codes) & ((codes > ADDRESS_MAX) | (not has_ext))


def wrong_entries(commit_log: CommitLog, entries: np.ndarray, begin_timestamp: int) -> np.ndarray:
    """Which index entries have a hash that is none of their record's keys, or another time than their record."""
    wrong = np.zeros(len(entries), bool)
    for rows, batch in records_at(commit_log, entries["physical_offset"].astype(np.int64)):
        hashes, owners = hash_requests(ColumnBatch(batch, _DELAYS).requests)
        pairs = (np.arange(len(batch))[owners] << 32) | hashes
        mine = (np.arange(len(batch)) << 32) | entries["key_hash"][rows].astype(np.int64)
        seconds = np.clip((batch.store_timestamp - begin_timestamp) // 1000, 0, 0x7FFFFFFF)
        filler = batch.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK  # in the place of a record that was lost
        wrong[rows] = (~np.isin(mine, pairs) | (np.abs(entries["seconds"][rows] - seconds) > 1)) & ~filler
    return wrong


def wrong_chains(entries: np.ndarray, slot_count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which entries name another predecessor than the one in their slot; the slots in use, and each one's newest."""
    slots = entries["key_hash"].astype(np.int64) % slot_count
    order = np.argsort(slots, kind="stable")
    sorted_slots = slots[order]
    same = np.concatenate(([False], sorted_slots[1:] == sorted_slots[:-1]))
    before = np.concatenate(([0], order[:-1] + 1))
    expected = np.zeros(len(entries), np.int64)
    expected[order] = np.where(same, before, 0)
    last = np.concatenate((sorted_slots[1:] != sorted_slots[:-1], [True]))
    return entries["previous"] != expected, sorted_slots[last], order[last] + 1


def config_problems(root: Path) -> Iterator[tuple[str, str]]:
    """(file, what is wrong with it) for each metadata file that does not agree with its checksum."""
    for path in sorted((root / "config").glob("*.json*")):
        if path.suffix not in (".json", ".bak"):
            continue
        try:
            data = read_file(path)
            if data.strip(b" \t\r\n\0") and not is_changed(data, path.stat().st_mtime_ns) and check_json(data):
                json.loads(data)
        except (ValueError, OSError) as error:
            yield f"config/{path.name}", str(error)
