"""Log copies of one task: a few at a time, each for its share of the tick."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable

from twinlog.spark.jobs.sync.log_copy import CopyLimits, copy_log
from twinlog.spark.jobs.sync.replicas.replica import Replica
from twinlog.spark.jobs.sync.sources import HaSource, StoreSource
from twinlog.spark.jobs.sync.sync_plan import COPIES_AT_ONCE, copy_share_ms
from twinlog.spark.jobs.sync.tick_work import TickWork
from twinlog.store.errors import StoreError

OpenSource = Callable[[], HaSource | StoreSource]
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


class CopySlots:
    """Shared by the brokers of one task."""

    def __init__(self, work: TickWork) -> None:
        self._work = work
        self._slots = asyncio.Semaphore(COPIES_AT_ONCE)
        self._copying = 0

    async def copy(self, replica: Replica, opened: OpenSource, goal: int, first: bytes, begin: int) -> None:
        """Copy in a thread when a slot is free; the source is opened only then."""

        def copy(limits: CopyLimits) -> None:
            with opened() as source:
                try:
                    copy_log(replica, source, limits, first=first, begin=begin)
                except OSError as error:
                    if error.errno in DISK_ERRORS:
                        with contextlib.suppress(OSError, StoreError):  # the first error is the one to report
                            replica.drop_unsaved()
                    raise

        self._copying += 1
        try:
            async with self._slots:
                share_s = copy_share_ms(self._work.tick_ms, self._copying) / 1000
                await asyncio.to_thread(copy, CopyLimits(goal, time.monotonic() + share_s, self._work.range_bytes_max))
        finally:
            self._copying -= 1
