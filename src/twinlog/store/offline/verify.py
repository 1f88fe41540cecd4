"""Checks every record, queue unit and index entry of a store, and changes nothing.

    log      names, sizes and order of files; every record's length, place, CRC and time; what follows the end
    queues   every unit points at a record of its topic and queue, with its tags code; none is missing from its queue
    index    every entry points at a record with its key and time; chains and slots are complete
    config   metadata files agree with their checksums
    checkpoint    agrees with the copy beside it

A problem makes a broker or a reader fail or return something wrong. A note is harmless: a queue
that is behind in a store that is live or crashed (recovery completes it), a place in a queue whose message was
lost and which points at its neighbour, fillers where damage was replaced.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.offline.store_files import StoredIndexFile, StoredQueue, StoreFiles
from twinlog.store.offline.verify_derived import (
    config_problems,
    records_at,
    wrong_chains,
    wrong_entries,
    wrong_tags,
)
from twinlog.store.queues.consume_queue import FILL_SIZE
from twinlog.store.recovery.checkpoint import checkpoint_is_damaged
from twinlog.store.recovery.quarantine import QUARANTINE_TOPIC
from twinlog.store.recovery.unit_repair import heads_at
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.walk import Hole, LogEnd, walk_log
from twinlog.wire.record_layout import MAGIC_V1, MAGIC_V2
from twinlog.wire.values.sys_flag import TRANSACTION_HIDDEN, TRANSACTION_MASK, TRANSACTION_ROLLBACK

PROBLEMS_MAX = 1000


@dataclass(slots=True)
class VerifyReport:
    """What was checked and what was wrong."""

    records: int = 0
    log_start: int = 0
    log_end: int = 0
    queues: int = 0
    units: int = 0
    index_entries: int = 0
    lost_messages: bool = False  # the log has holes or fillers, so that places in queues may stand for lost messages
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)  # the first of them
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.problem_count == 0

    def problem(self, text: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


def verify_store(store: StoreFiles, *, progress: Callable[[int], None] | None = None) -> VerifyReport:
    """Check the whole store; `progress` is called with the byte of the log that is reached."""
    report, began = VerifyReport(log_start=store.commit_log.log_start), time.perf_counter()
    expected = _verify_log(store, report, progress)
    unfinished = store.was_aborted or store.is_live
    if unfinished:
        report.notes.append("the store is live, or its broker crashed: what is still in memory is not on disk")
    seen = set()
    for queue in store.queues():
        seen.add((queue.topic, queue.queue_id))
        _verify_queue(store.commit_log, queue, report, expected.get((queue.topic, queue.queue_id), 0), unfinished)
    for topic, queue_id in sorted(expected.keys() - seen):
        report.notes.append(f"topic {topic} queue {queue_id} has records and no queue: it was deleted, or is rebuilt")
    for file in store.index_files():
        verify_index(store.commit_log, file, report, unfinished)
    for name, problem in config_problems(store.root):
        report.problem(f"{name}: {problem}")
    if checkpoint_is_damaged(store.root / "checkpoint"):
        report.problem("checkpoint: some of its bits differ from their copy; a start uses the copy")
    report.seconds = time.perf_counter() - began
    return report


def _verify_log(
    store: StoreFiles, report: VerifyReport, progress: Callable[[int], None] | None
) -> dict[tuple[str, int], int]:
    """Walk the log; returns the next queue offset that each queue must have reached."""
    expected: dict[tuple[str, int], int] = defaultdict(int)
    newest = fillers = holes = 0
    for found in walk_log(store.commit_log):
        if isinstance(found, Hole):
            holes += 1
            report.problem(f"log {found.begin} to {found.end}: no valid record ({found.reason})")
        elif isinstance(found, LogEnd):
            report.log_end = found.physical_offset
            if found.is_torn and not (store.was_aborted or store.is_live):
                report.problem(f"log {found.physical_offset}: torn end ({found.stop.reason.value})")
            elif found.is_torn:
                report.notes.append(f"log {found.physical_offset}: torn end ({found.stop.reason.value})")
        else:
            report.records += len(found)
            backwards = np.flatnonzero(np.diff(found.store_timestamp, prepend=newest) < 0)
            if len(backwards):
                at = int(found.physical_offset[backwards[0]])
                report.notes.append(f"log {at}: {len(backwards)} records stored earlier than the one before them")
            newest = max(newest, int(found.store_timestamp.max()))
            fillers += _count_expected(found, expected)
            if progress is not None:
                progress(int(found.physical_offset[-1] + found.size[-1]))
    report.lost_messages = bool(fillers or holes)
    if fillers:
        report.notes.append(f"{fillers} filler records where damage was replaced; see the quarantine directory")
    return expected


def _count_expected(batch: ScannedRecords, expected: dict[tuple[str, int], int]) -> int:
    """Raise each queue's expected end; returns the number of fillers."""
    queued = batch.sys_flag & TRANSACTION_HIDDEN == 0
    keys = batch.topic_number << 32 | batch.queue_id.astype(np.int64) & 0xFFFFFFFF
    _, rows, numbers = np.unique(keys[queued], return_index=True, return_inverse=True)
    ends = np.zeros(len(rows), np.int64)
    np.maximum.at(ends, numbers.reshape(-1), batch.queue_offset[queued] + 1)
    for row, end in zip(np.flatnonzero(queued)[rows].tolist(), ends.tolist(), strict=True):
        name = batch.topics[int(batch.topic_number[row])], int(batch.queue_id[row])
        expected[name] = max(expected[name], end)
    if QUARANTINE_TOPIC not in batch.topics:
        return 0
    number = batch.topics.index(QUARANTINE_TOPIC)
    hidden = batch.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
    return int(np.count_nonzero((batch.topic_number == number) & hidden))


def _verify_queue(
    commit_log: CommitLog, queue: StoredQueue, report: VerifyReport, expected_end: int, unfinished: bool
) -> None:
    name = f"topic {queue.topic} queue {queue.queue_id}"
    report.queues += 1
    end = stand_ins = 0
    for first, units in queue.chunks():
        report.units += len(units)
        numbers = first + np.arange(len(units))
        end = int(units["base_offset"][-1] + units["batch_size"][-1]) if queue.is_batch else first + len(units)
        alive = (units["physical_offset"] >= report.log_start) & (units["size"] != FILL_SIZE)
        units, numbers = units[alive], numbers[alive]
        beyond = units["physical_offset"] + units["size"] > report.log_end
        if beyond.any() and not unfinished:
            report.problem(f"{name} offset {int(numbers[np.argmax(beyond)])}: points beyond the log's end")
        units, numbers = units[~beyond], numbers[~beyond]
        heads = heads_at(commit_log, units["physical_offset"].astype(np.int64))
        good = (
            ((heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2))
            & (heads["size"] == units["size"])
            & (heads["physical_offset"] == units["physical_offset"])
            & (heads["queue_id"] == queue.queue_id)
        )
        own, tagged = _topic_and_tags(commit_log, units[good], queue)
        good[np.flatnonzero(good)[~own]] = False
        for row in np.flatnonzero(good)[~tagged[own]][:PROBLEMS_MAX]:
            report.problem(f"{name} offset {int(numbers[row])}: its tags code is not that of its record")
        for row in np.flatnonzero(~good)[:PROBLEMS_MAX]:
            at = int(units["physical_offset"][row])
            report.problem(f"{name} offset {int(numbers[row])}: no record of this queue at {at}")
        if not queue.is_batch:
            other = good & (heads["queue_offset"] != numbers)
            places = units["physical_offset"].astype(np.int64)
            beside = (np.diff(places, prepend=-1) == 0) | (np.diff(places, append=-1) == 0)
            stand_ins += int(np.count_nonzero(other & beside & report.lost_messages))
            for row in np.flatnonzero(other & ~(beside & report.lost_messages))[:PROBLEMS_MAX]:
                text = f"{name} offset {int(numbers[row])}: points at the record of offset"
                report.problem(f"{text} {int(heads['queue_offset'][row])}")
    if stand_ins:
        report.notes.append(f"{name}: {stand_ins} places of lost messages point at a neighbour")
    if end < expected_end:
        text = f"{name}: ends at {end}, the log has messages up to {expected_end}"
        if unfinished:
            report.notes.append(text)
        else:
            report.problem(f"{text}; a clean stop leaves none behind")


def verify_index(commit_log: CommitLog, file: StoredIndexFile, report: VerifyReport, unfinished: bool) -> None:
    """Compare an index file with the log."""
    if not file.has_expected_size:
        report.notes.append(f"index {file.path.name}: not checked, give maxHashSlotNum and maxIndexNum of its broker")
        return
    previous = 0
    found: list[np.ndarray] = []
    for entries in file.chunks():
        found.append(entries)
        report.index_entries += len(entries)
        offsets = entries["physical_offset"].astype(np.int64)
        if (np.diff(offsets, prepend=previous) < 0).any():
            report.problem(f"index {file.path.name}: entries are not in log order")
        previous = int(offsets[-1])
        alive = (offsets >= report.log_start) & (offsets < report.log_end)
        heads = heads_at(commit_log, offsets[alive])
        # A lost record without a known place lies inside a filler, which is zeros there.
        good = (heads["physical_offset"] == offsets[alive]) | ((heads["magic"] == 0) & report.lost_messages)
        for row in np.flatnonzero(~good)[:PROBLEMS_MAX]:
            report.problem(f"index {file.path.name}: no record at {int(offsets[alive][row])}")
        whole = (heads["physical_offset"] == offsets[alive]) & (heads["magic"] != 0)
        kept = entries[alive][whole]
        for row in np.flatnonzero(wrong_entries(commit_log, kept, file.begin_timestamp))[:PROBLEMS_MAX]:
            at = int(kept["physical_offset"][row])
            report.problem(f"index {file.path.name}: an entry of the record at {at} has another key or time than it")
    if found:
        _verify_chains(file, np.concatenate(found), report, unfinished)


def _verify_chains(file: StoredIndexFile, entries: np.ndarray, report: VerifyReport, unfinished: bool) -> None:
    """Chains of entries, and the slots that they hang on; the slots of a crashed store are computed again anyway."""
    wrong, slots, newest = wrong_chains(entries, file.slot_count)
    for row in np.flatnonzero(wrong)[:PROBLEMS_MAX]:
        report.problem(f"index {file.path.name}: entry {int(row) + 1} does not lead to the one before it in its slot")
    if unfinished:
        return
    stored = file.slots()
    used = np.zeros(file.slot_count, np.int64)
    used[slots] = newest
    for slot in np.flatnonzero(stored != used)[:PROBLEMS_MAX]:
        report.problem(f"index {file.path.name}: slot {int(slot)} does not lead to its newest entry")
    if file.end_physical != int(entries["physical_offset"][-1]):
        report.problem(f"index {file.path.name}: its header ends at {file.end_physical}, its entries do not")


def _topic_and_tags(commit_log: CommitLog, units: np.ndarray, queue: StoredQueue) -> tuple[np.ndarray, np.ndarray]:
    """Which of these units point at a record of the queue's topic, and which have the tags code of their record."""
    own, tagged = np.zeros(len(units), bool), np.ones(len(units), bool)
    for rows, batch in records_at(commit_log, units["physical_offset"].astype(np.int64)):
        if queue.topic not in batch.topics:
            continue
        own[rows] = batch.topic_number == batch.topics.index(queue.topic)
        if not queue.is_batch:
            tagged[rows] = ~wrong_tags(
                queue.topic, batch, units["tags_code"][rows].astype(np.int64), has_ext=queue.has_ext
            )
    return own, tagged
