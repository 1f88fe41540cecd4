"""A replica that copies gigabytes reuses a few hundred MiB of page cache, where new memory is expensive.

The kernel caches every page that is written, and takes a new one for each as long as memory is free. Where a new page
is expensive, the copy waits for memory: a virtual machine asks its host for it (9 us for each 4 KiB on one, twenty
times the copying), a container at its limit searches for pages to evict. Then the copy does better with a few hundred
MiB that it uses over and over: what it wrote is flushed at once, and pages far enough behind leave the cache.

    | not cached any more | flushed, still cached | being flushed | being written |
                          | <-------- CACHED_BYTES_MIN and what the disk needs --> | log end

Nothing is dropped before it is on disk, so a slow disk only means that more stays cached. Nor is anything dropped
where new pages are cheap: those who read the replica next find everything in memory. The receiving thread notices
the difference by the CPU time of its writes.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor

from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore

CACHED_BYTES_MIN = 64 * 1024 * 1024
_ROUND_BYTES = 32 * 1024 * 1024  # flushed at once, at least
_SAMPLE_BYTES = 32 * 1024 * 1024
_EXPENSIVE_SECONDS_PER_BYTE = 1 / 1.6e9  # copying alone takes an eighth to a third of that


class MemoryReuse:
    """Follows the copy of one link. The receiving thread calls `wrote`, the loop everything else."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replica-flush")
        self._round: Future[int] | None = None
        self._dropped_end = store.log_end
        self._sample_bytes = 0
        self._sample_seconds = 0.0
        self.is_worthwhile = False  # once new memory was expensive, it counts as such until the link ends

    def wrote(self, size: int, cpu_seconds: float) -> None:
        """Writing `size` bytes took so much CPU time."""
        self._sample_bytes += size
        self._sample_seconds += cpu_seconds
        if self._sample_bytes >= _SAMPLE_BYTES:
            if self._sample_seconds > self._sample_bytes * _EXPENSIVE_SECONDS_PER_BYTE:
                self.is_worthwhile = True
            self._sample_bytes, self._sample_seconds = 0, 0.0

    def turn(self) -> None:
        """Begin to flush and drop, if there is enough of it and the last round is over."""
        if not self.is_worthwhile or (self._round is not None and not self._round.done()):
            return
        if self._round is not None:
            self._dropped_end, self._round = self._round.result(), None
        if self._store.log_end - self._store.flushed_end >= _ROUND_BYTES:
            self._round = self._thread.submit(self._flush_and_drop, self._dropped_end)

    def stop(self) -> None:
        """Begin nothing more; a flush that is running ends by itself, and changes nothing in the log."""
        self._thread.shutdown(wait=False)

    def _flush_and_drop(self, begin: int) -> int:
        """Runs in the thread; returns how far pages were dropped."""
        store = self._store
        with contextlib.suppress(StoreError):  # the flush service gets the same error, and logs it
            store.flush()
        # What is not dispatched yet will be read by the loop: it should be in memory.
        end = min(store.flushed_end, store.dispatched_end) - CACHED_BYTES_MIN
        if end <= begin:
            return begin
        store.commit_log.drop_cached(begin, end)
        return end
