"""Consume queues of two stores: units that one side lacks, or that point elsewhere.

Unit numbers are queue offsets, so both sides are compared at equal numbers. Only units whose record is in both logs are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from twinlog.spark.jobs.audit.findings import Finding
from twinlog.spark.jobs.endpoint import Endpoint
from twinlog.store.offline.store_files import StoredQueue, StoreFiles
from twinlog.store.queues.consume_queue import FILL_SIZE

_NAMES = ("physical_offset", "size", "tags_code")


def compare_queues(
    pair: str, master: Endpoint, replica: Endpoint, log: tuple[int, int], *, unfinished: bool
) -> Iterator[Finding]:
    """Every unit that differs, of records within `log`; units that a running broker has not written yet are lag."""
    with _open(master) as one, _open(replica) as other:
        ours = {(queue.kind, queue.topic, queue.queue_id): queue for queue in one.queues()}
        theirs = {(queue.kind, queue.topic, queue.queue_id): queue for queue in other.queues()}
    for key in sorted(ours.keys() | theirs.keys()):
        _, topic, queue_id = key
        left, right = _units(ours.get(key)), _units(theirs.get(key))
        for what, side, numbers, units in _differences(left, right, log):
            kind = "lag" if unfinished and side is not None else "unit"
            for number, offset in zip(numbers.tolist(), units["physical_offset"].tolist(), strict=True):
                yield Finding(pair, kind, what, side, topic, None, "consume queue", queue_id, number, offset)


def _open(side: Endpoint) -> StoreFiles:
    assert side.store is not None, side
    return StoreFiles(side.store, commit_log_dirs=side.commit_log_dirs)


def _differences(
    left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray], log: tuple[int, int]
) -> Iterator[tuple[str, str | None, np.ndarray, np.ndarray]]:
    """(what, the side that lacks them, numbers, units)"""
    (numbers, units), (other_numbers, other_units) = _within(*left, log), _within(*right, log)
    common, rows, other_rows = np.intersect1d(numbers, other_numbers, assume_unique=True, return_indices=True)
    mine, yours = units[rows], other_units[other_rows]
    unequal = np.zeros(len(common), bool)
    for name in _NAMES:
        unequal |= mine[name] != yours[name]
    if unequal.any():
        yield "the units differ", None, common[unequal], mine[unequal]
    for text, side, have, found, lacking in (
        ("the replica has no unit for it", "replica", numbers, units, other_numbers),
        ("the master has no unit for it", "master", other_numbers, other_units, numbers),
    ):
        alone = ~np.isin(have, lacking)
        if alone.any():
            yield text, side, have[alone], found[alone]


def _within(numbers: np.ndarray, units: np.ndarray, log: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    keep = (
        (units["size"] != FILL_SIZE)
        & (units["physical_offset"] >= log[0])
        & (units["physical_offset"] + units["size"] <= log[1])
    )
    return numbers[keep], units[keep]


def _units(queue: StoredQueue | None) -> tuple[np.ndarray, np.ndarray]:
    """(numbers, units) of a queue; empty if it does not exist."""
    numbers, parts = [], []
    for first, units in queue.chunks() if queue is not None else ():
        parts.append(units)
        numbers.append(
            units["base_offset"].astype(np.int64) if queue and queue.is_batch else first + np.arange(len(units))
        )
    if not parts:
        empty = np.zeros(0, [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
        return np.zeros(0, np.int64), empty
    return np.concatenate(numbers), np.concatenate(parts)
