"""Old readings of all counters, from which their growth in the last minute, hour and day follows.

The hot paths add to the two members of a `MessageCounter`, nothing else. Counters stand in blocks. A block has one ring
of readings per window, and a ring is one array:

    reading x (counts, bytes) x counter

All blocks of a window are read at the same times, one after the other, so that the loop is not held up by 100,000
counters. A reading of a counter is sixteen bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from twinlog.telemetry.histograms import MEDIUM_BYTES, MESSAGE_BYTES

MINUTE_STEP_MS, MINUTE_READINGS = 10_000, 7
HOUR_STEP_MS, HOUR_READINGS = 600_000, 7
DAY_STEP_MS, DAY_READINGS = 3_600_000, 25
WINDOWS = ((MINUTE_STEP_MS, MINUTE_READINGS), (HOUR_STEP_MS, HOUR_READINGS), (DAY_STEP_MS, DAY_READINGS))
BLOCK_COUNTERS = 1024  # reading one block takes a tenth of a millisecond


class MessageCounter:
    """Running totals of one statistic."""

    __slots__ = ("block", "bytes", "count", "large", "medium", "slot")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.medium = 0  # messages above LARGE_BYTES, up to MEDIUM_BYTES; the smaller ones are not counted apart
        self.large: list[int] | None = None  # messages above MEDIUM_BYTES by size
        self.block: Block | None = None  # where its readings are
        self.slot = 0

    def add_large(self, size: int, count: int = 1) -> None:
        """Note the size of messages, each larger than LARGE_BYTES."""
        if size <= MEDIUM_BYTES:
            self.medium += count
            return
        if self.large is None:
            self.large = [0] * (len(MESSAGE_BYTES) - 1)
        self.large[bisect_left(MESSAGE_BYTES, size) - 2] += count

    def size_counts(self) -> list[int]:
        """Messages by size, one number per bound and one above all bounds."""
        large = self.large or [0] * (len(MESSAGE_BYTES) - 1)
        return [self.count - self.medium - sum(large), self.medium, *large]


class Block:
    """The readings of up to `BLOCK_COUNTERS` counters. Memory is used as readings are taken."""

    def __init__(self) -> None:
        self.counters: list[MessageCounter] = []
        self.rings = [np.zeros((readings, 2, BLOCK_COUNTERS), np.int64) for _, readings in WINDOWS]

    def read(self, window: int, index: int) -> None:
        counters, row = self.counters, self.rings[window][index]
        row[0, : len(counters)] = [counter.count for counter in counters]
        row[1, : len(counters)] = [counter.bytes for counter in counters]


class _Clock:
    """When the rings of one window were last read."""

    def __init__(self, step_ms: int, readings: int, now_ms: int) -> None:
        self.step_ms, self.readings = step_ms, readings
        self.times = [now_ms] * readings
        self.oldest = 0

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self.times[self.oldest - 1] >= self.step_ms

    def tick(self, now_ms: int) -> int:
        """The index in every ring where the new reading goes."""
        index = self.oldest
        self.times[index] = now_ms
        self.oldest = (index + 1) % self.readings
        return index


_NOTHING = MessageCounter()  # stands where a counter was forgotten


class Readings:
    """The readings of all counters; a counter that is younger than a reading was 0 then."""

    def __init__(self, now_ms: int) -> None:
        self._clocks = [_Clock(step_ms, readings, now_ms) for step_ms, readings in WINDOWS]
        self._blocks: list[Block] = []
        self._free: list[tuple[Block, int]] = []  # places of counters that were forgotten

    def counter(self) -> MessageCounter:
        """A new counter, which is read from now on."""
        counter = MessageCounter()
        if self._free:
            counter.block, counter.slot = block, slot = self._free.pop()
            block.counters[slot] = counter
            return counter
        if not self._blocks or len(self._blocks[-1].counters) == BLOCK_COUNTERS:
            self._blocks.append(Block())
        block = self._blocks[-1]
        counter.block, counter.slot = block, len(block.counters)
        block.counters.append(counter)
        return counter

    def forget(self, counter: MessageCounter) -> None:
        """Read this counter no more; a later one gets its place, with no readings."""
        block, slot = counter.block, counter.slot
        assert block is not None
        block.counters[slot] = _NOTHING
        for ring in block.rings:
            ring[:, :, slot] = 0
        counter.block = None
        self._free.append((block, slot))

    def tick(self, now_ms: int) -> Iterator[None]:
        """Take the readings that are due, a block between two steps of the iterator."""
        for window, clock in enumerate(self._clocks):
            if clock.is_due(now_ms):
                index = clock.tick(now_ms)
                for block in self._blocks[:]:
                    block.read(window, index)
                    yield

    def oldest(self, counter: MessageCounter, window: int) -> tuple[int, int, int]:
        """(count, bytes, time) of the counter's oldest reading in a window."""
        clock = self._clocks[window]
        if counter.block is None:
            return 0, 0, clock.times[clock.oldest]
        ring, slot = counter.block.rings[window], counter.slot
        return int(ring[clock.oldest, 0, slot]), int(ring[clock.oldest, 1, slot]), clock.times[clock.oldest]
