"""What name servers know about the brokers of this name: how many replicas, who is master, who has the same id."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.replication.errors import IdentityTaken
from twinlog.replication.master_epoch import EpochLost
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.naming.member_groups import MemberGroup
    from twinlog.broker.naming.register_service import RegisterService
    from twinlog.replication.master.replica_acks import ReplicaAcks

log = get_logger(__name__)
IDENTITY_S_MAX = 1.0
_PERIOD_S = 10.0
_LOST_EPOCH_S_MAX = 10.0  # longer than for an identity: sends wait meanwhile


class MemberWatch:
    """Asks name servers now and then; its loops are started by the replication service."""

    def __init__(
        self,
        ctx: BrokerContext,
        group: MemberGroup,
        register: RegisterService,
        acks: ReplicaAcks,
        on_count: Callable[[], None],
    ) -> None:
        self._ctx = ctx
        self._group = group
        self._register = register
        self._acks = acks
        self._on_count = on_count
        self._wanted = asyncio.Event()
        self._is_known = False  # a name server has returned the number of replicas at least once
        self.identity_conflicts = 0

    def count_soon(self) -> None:
        """A replica has connected."""
        if self._acks.registered_replicas is None and self._register.name_servers:
            self._acks.registered_replicas = 0  # until a name server has answered
        self._wanted.set()

    async def count_replicas(self) -> None:
        """Ask how many replicas this master has, until cancelled: Java connections count no further than that."""
        while True:
            self._wanted.clear()
            if self._ctx.is_master and self._acks.rows():
                await self._count()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PERIOD_S):
                    await self._wanted.wait()

    async def check_identity(self) -> None:
        """IdentityTaken when another broker serves under this name and id; nothing else is a reason not to start."""
        await self._ctx.fence.attempt("IdentityWatch", self._check_identity, raises=(IdentityTaken,))

    async def check_lost_epoch(self) -> None:
        """EpochLost when this master has lost its epoch file, and another broker has seen a promoted master."""
        await self._ctx.fence.attempt("IdentityWatch", self._check_lost_epoch, raises=(EpochLost,))

    async def _check_lost_epoch(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOST_EPOCH_S_MAX):
                epoch, address = await self._group.highest_epoch()
                if epoch > 0:
                    raise EpochLost(self._ctx.settings.broker_name, epoch, address)

    async def watch_identity(self) -> None:
        """Log an error when a second broker of this identity appears while this one runs, until cancelled.

        It was not found at the start: its name server was away then.
        """
        while True:
            await asyncio.sleep(_PERIOD_S)
            try:
                await self._check_identity()
            except IdentityTaken as taken:
                self.identity_conflicts += 1
                log.error("two brokers have one identity", reason=str(taken))

    async def masters(self) -> set[str]:
        """The addresses of masters of this broker's name, other than its own."""
        return {members[0] for members in await self._group.members() if 0 in members} - {self._ctx.settings.address}

    async def _count(self) -> None:
        own = self._ctx.settings.address
        # A name server that does not list this master yet has just started.
        known = [members for members in await self._group.members() if members.get(0) == own]
        counts = [sum(broker_id > 0 for broker_id in members) for members in known]
        if counts:
            self._is_known = True
            self._acks.registered_replicas = max(counts)
        elif not self._is_known:
            self._acks.registered_replicas = None  # no name server answers: connections count as they do in Java
        self._on_count()

    async def _check_identity(self) -> None:
        settings = self._ctx.settings
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDENTITY_S_MAX):
                if (rival := await self._group.rival(settings.broker_id)) is not None:
                    raise IdentityTaken(settings.broker_name, settings.broker_id, rival)
