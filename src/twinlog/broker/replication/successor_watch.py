"""Finds out whether another broker has replaced this master, and if so, makes this one a replica.

It asks when the loop was held up for so long that the process may have been stopped, when a replica knows a higher
epoch, and every ten seconds. The name servers prefer the master of the higher epoch, so they return its address. If no
name server answers, this broker goes on: only a consensus service could decide then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import MASTER_ID

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.naming.member_groups import MemberGroup
    from twinlog.broker.replication.epoch_file import EpochFile

log = get_logger(__name__)
_TICK_S = 0.5  # several within MasterGuard's limit
_PERIOD_TICKS = 20
_ASK_S_MAX = 2.0


class SuccessorWatch:
    """Keeps the guard of a master valid, as long as nobody has replaced it."""

    def __init__(
        self,
        ctx: BrokerContext,
        group: MemberGroup,
        epochs: EpochFile,
        change_role: Callable[[str], Awaitable[object]],
    ) -> None:
        self._ctx = ctx
        self._group = group
        self._epochs = epochs
        self._change_role = change_role
        self._wake = asyncio.Event()
        self._steps_down = False  # until all steps were taken
        self._holds = 0  # how many others keep the guard in doubt

    def check_soon(self) -> None:
        self._wake.set()

    @contextlib.asynccontextmanager
    async def in_doubt(self) -> AsyncIterator[None]:
        """Nothing is acknowledged within: it is not known yet whether this broker is the only master."""
        self._holds += 1
        self._ctx.guard.doubt()
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._ctx.guard.confirm()

    async def run(self) -> None:
        """Until cancelled. If this ends with an error, sends wait until it runs again."""
        ticks = 0
        if not self._holds:
            self._ctx.guard.tick()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._wake.wait()
            if self._holds:  # who holds it confirms it
                continue
            guard, ticks = self._ctx.guard, ticks + 1
            is_valid = guard.tick()
            if not is_valid:
                log.warning("the broker was held up; asking whether another master has replaced it")
            if not is_valid or self._wake.is_set() or ticks % _PERIOD_TICKS == 0:
                self._wake.clear()
                await self._check()
            if not is_valid and not self._holds:
                guard.confirm()

    async def _check(self) -> None:
        ctx = self._ctx
        if ctx.is_master:
            address, epoch = await self._rival()
            own = self._epochs.now.own
            if not ctx.is_master or epoch < own or epoch == 0:
                return
            if epoch == own and await self._group.lists_me():
                return  # the other one does not find itself at any name server, and steps down
            log.error("another master has replaced this one, which becomes a replica", master=address, epoch=epoch)
            ctx.guard.doubt()  # before anything that can fail
            self._steps_down = True
            self._epochs.saw(epoch)
        if self._steps_down:
            try:
                await self._change_role("SLAVE")
                self._steps_down = False
            finally:
                if not ctx.is_master:  # then sends are refused, even if a later step failed
                    ctx.guard.confirm()

    async def _rival(self) -> tuple[str | None, int]:
        """Another master of this name and its epoch; None and 0 if there is none, or no answer in time.

        The guard ticks meanwhile: a name server that does not answer must not bring a master into doubt.
        """
        guard, asking = self._ctx.guard, asyncio.ensure_future(self._ask())
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=_TICK_S)
                if guard.is_valid:
                    guard.tick()
            return asking.result()
        finally:
            asking.cancel()

    async def _ask(self) -> tuple[str | None, int]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASK_S_MAX):
                address = await self._group.rival(MASTER_ID)
                return address, await self._group.master_epoch(address) if address is not None else 0
        return None, 0
