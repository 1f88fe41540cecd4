"""What runs while a broker is a replica: the copy of its master's log, and the synchronisation of its metadata."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from twinlog.replication.replica.metadata_sync_service import MetadataSyncService
from twinlog.replication.replica.replica_service import MasterAddresses, ReplicaService

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext

_LAST_SYNC_S_MAX = 1.0  # a master that does not answer must not delay its successor
_SYNC_TASK = MetadataSyncService.__name__

StartTask = Callable[[str, Callable[[], Awaitable[None]]], "asyncio.Task[None]"]


class Following:
    """Starts and stops the two services of a replica; `start_task` gives each a task and its name."""

    def __init__(
        self, ctx: BrokerContext, replica: ReplicaService, sync: MetadataSyncService, start_task: StartTask
    ) -> None:
        self._ctx = ctx
        self._replica = replica
        self._sync = sync
        self._start_task = start_task
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for service in (self._replica, self._sync):
            self._tasks.append(self._start_task(type(service).__name__, service.run))
        self.use_known_master()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def use_known_master(self) -> None:
        """Follow the master whose addresses the last registration returned."""
        if self._ctx.is_master:
            return
        address = self._ctx.master_address
        self._replica.master_is_at(MasterAddresses(self._ctx.master_ha_address, address))
        self._sync.master_is_at(address)

    async def leave_master(self) -> None:
        """Synchronise metadata once more, if the master still answers; then forget its addresses.

        Without this round, messages could be here whose topic is not.
        """
        for task in [one for one in self._tasks if one.get_name() == _SYNC_TASK]:
            self._tasks.remove(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SYNC_S_MAX):
                await self._ctx.fence.attempt(_SYNC_TASK, self._sync.sync)
        self._ctx.master_address = self._ctx.master_ha_address = None
        self._replica.forget_master()
        self._sync.master_is_at(None)
