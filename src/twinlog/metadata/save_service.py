"""Writes metadata files; a request waits for its own change only.

An eager table (topics, groups) is written as soon as it changes; changes that arrive during a write share the next
one. A lazy table (offsets) is written once per period. Writing has threads of its own, so that other work does not
delay the creation of a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from twinlog.metadata.persisted import PersistedTable

RETRY_S = 1.0
THREADS = 2


class SaveService:
    """Writes the tables while a broker runs; all calls come from the event loop's thread."""

    def __init__(
        self,
        eager: Iterable[PersistedTable],
        periods_s: Mapping[PersistedTable, float],
        on_error: Callable[[PersistedTable, OSError], None],
    ) -> None:
        self._wakes: dict[PersistedTable, asyncio.Event] = {table: asyncio.Event() for table in eager}
        self._periods_s = dict(periods_s)
        self._locks = {table: asyncio.Lock() for table in (*self._wakes, *self._periods_s)}
        self._on_error = on_error
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(THREADS, thread_name_prefix="save")
        for table, wake in self._wakes.items():
            table.on_change.append(wake.set)
        for table in self._locks:
            table.saver = self.saved

    async def run(self) -> None:
        """Write until cancelled; a full disk is reported and tried again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for table, wake in self._wakes.items():
                    tasks.create_task(self._on_change(table, wake))
                for table, period_s in self._periods_s.items():
                    tasks.create_task(self._every(table, period_s))
        finally:
            threads, self._threads = self._threads, None
            if threads is not None:
                threads.shutdown()  # waits for writes that have begun

    async def saved(self, table: PersistedTable) -> None:
        """Return once everything in `table` by now is on disk; OSError when it cannot be written."""
        edition = table.edition
        async with self._locks[table]:
            # The last holder of the lock may have written this change too.
            if table.is_saved(edition):
                return
            pending = table.begin_save()
            if pending is None:
                return
            if self._threads is None:  # the service has stopped: the loop need not be kept free
                pending.write()
            else:
                await asyncio.get_running_loop().run_in_executor(self._threads, pending.write)

    async def _on_change(self, table: PersistedTable, wake: asyncio.Event) -> None:
        while True:
            await wake.wait()
            wake.clear()
            if not await self._try(table):
                wake.set()

    async def _every(self, table: PersistedTable, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            await self._try(table)

    async def _try(self, table: PersistedTable) -> bool:
        try:
            await self.saved(table)
        except OSError as error:
            self._on_error(table, error)
            await asyncio.sleep(RETRY_S)
            return False
        return True
