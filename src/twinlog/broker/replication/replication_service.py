"""Replication within a broker: what runs in which role."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.clock import monotonic_ms
from twinlog.broker.naming.member_groups import MemberGroup
from twinlog.broker.replication.epoch_file import EpochFile
from twinlog.broker.replication.following import Following
from twinlog.broker.replication.member_watch import MemberWatch
from twinlog.broker.replication.role_change import RoleChange
from twinlog.broker.replication.send_demand import SendDemand
from twinlog.broker.replication.store_instance import store_instance
from twinlog.broker.replication.successor_watch import SuccessorWatch
from twinlog.net.tls import ha_client_context, ha_server_tls
from twinlog.replication.master.log_marks import LogMarks
from twinlog.replication.master.master_service import MasterService
from twinlog.replication.master.replica_acks import ReplicaAcks
from twinlog.replication.replica.account_sync import AccountSync
from twinlog.replication.replica.metadata_sync_service import ExtraKind, FetchedKind, MetadataSyncService
from twinlog.replication.replica.plain_acl_sync import PlainAclSync
from twinlog.replication.replica.replica_service import ReplicaIdentity, ReplicaService
from twinlog.settings.access import plain_acl_home
from twinlog.settings.accounts import parse_account
from twinlog.store.errors import DispatchFailed

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.naming.register_service import RegisterService
    from twinlog.net.pool import ConnectionPool
    from twinlog.store.dispatch import DispatchRequest

_MASTER_SEARCH_S = 1.0  # while there is no link to a master


class ReplicationService:
    """Serves replicas as a master, follows the master as a replica, and changes between the two."""

    def __init__(
        self,
        ctx: BrokerContext,
        pool: ConnectionPool,
        register: RegisterService,
        extra_kinds: Sequence[ExtraKind] = (),
    ) -> None:
        self._ctx = ctx
        self.register = register
        self.group = MemberGroup(ctx, pool, lambda: register.name_servers)
        settings, acks = ctx.settings, ReplicaAcks()
        self.epochs = EpochFile(Path(ctx.conf.store.root_dir), settings.broker_name, ctx.conf.store.modes)
        self._start_epoch()
        self.send_demand = SendDemand(ctx, acks)
        self.members = MemberWatch(ctx, self.group, register, acks, on_count=self.send_demand.acknowledged)
        has_tls = ctx.conf.replication.tls_enabled or ctx.conf.replication.tls_required
        self.master = MasterService(
            lambda: ctx.conf.replication,
            ctx.store.commit_log,
            bind_address=settings.bind_address,
            clock_ms=monotonic_ms,
            acks=acks,
            accepts=lambda: ctx.is_master,
            has_accounts=ctx.gate is not None or ctx.conf.would_give_away,
            tls=ha_server_tls(ctx.conf.net.tls) if has_tls else None,
            on_join=self.members.count_soon,
            on_acks=self.send_demand.acknowledged,
            on_tick=self.send_demand.tick,
        )
        self.instance = store_instance(Path(ctx.conf.store.root_dir), ctx.conf.store.modes)
        identity = ReplicaIdentity(settings.cluster_name, settings.broker_name, settings.broker_id, self.instance)
        self.replica = ReplicaService(
            lambda: ctx.conf.replication,
            ctx.store,
            identity,
            pool,
            clock_ms=ctx.wall_ms,
            epochs=self.epochs,
            tls=(lambda: ha_client_context(ctx.conf.net.tls)) if has_tls else None,
        )
        self.sync = MetadataSyncService(
            lambda: ctx.conf.replication,
            ctx.tables,
            pool,
            own_address=settings.address,
            clock_ms=ctx.wall_ms,
            extra_kinds=extra_kinds,
            fetched_kinds=fetched_kinds(ctx),
            epochs=self.epochs,
        )
        self.following = Following(ctx, self.replica, self.sync, self._start_fenced)
        self.role_change = RoleChange(ctx, self.group, self)
        self.successors = SuccessorWatch(
            ctx, self.group, self.epochs, functools.partial(self.role_change.change_to, force=True)
        )
        self.marks = LogMarks(ctx.store.log_end)
        self._tasks: asyncio.TaskGroup | None = None
        self._lost_epoch = ctx.is_master and self.epochs.is_missing and ctx.store.log_end > 0  # or it never had one
        if self._lost_epoch:
            ctx.guard.doubt()  # until `check_start`
        ctx.pending_sends.replicas = self.send_demand
        ctx.wake_replicas, ctx.expect_reports = self.master.wake, self.send_demand.expect_reports
        ctx.change_role = self.role_change.change_to
        ctx.master_listeners.append(self.following.use_known_master)
        ctx.store.on_dispatch.append(self._dispatched)

    @property
    def epoch(self) -> int:
        """The epoch of this master, or the highest that this replica has seen."""
        return self.epochs.now.own if self._ctx.is_master else self.epochs.now.seen

    def _start_epoch(self) -> None:
        """A replica that is started as master is promoted; a master that was replaced must not start."""
        ctx = self._ctx
        if not ctx.is_master:
            self.epochs.follow()
        elif self.epochs.start_as_master():
            ctx.topics.take_epoch(self.epochs.now.own, ctx.clock_ms())

    async def check_start(self) -> None:
        """Before anything is acknowledged: IdentityTaken or EpochLost when this broker must not serve as it is."""
        if self._lost_epoch:
            async with self.successors.in_doubt():
                await self.members.check_identity()
                await self.members.check_lost_epoch()
        else:
            await self.members.check_identity()

    def listen(self) -> None:
        self.master.listen()

    async def run(self) -> None:
        self.send_demand.log_demand()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self.master.run(), name="MasterService")
                self._start_fenced("MemberCount", self.members.count_replicas)
                self._start_fenced("IdentityWatch", self.members.watch_identity)
                if not self._ctx.master_is_chosen:
                    self._start_fenced("MasterSearch", self._search_master)
                    self._start_fenced("SuccessorWatch", self.successors.run)
                if not self._ctx.is_master:
                    self.following.start()
        finally:
            await self.following.stop()

    def _start_fenced(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        assert self._tasks is not None, "tasks are started while the broker runs"
        # A hole in the queues is acknowledged data that cannot be read: that error ends the broker.
        return self._tasks.create_task(self._ctx.fence.run(name, work, raises=(DispatchFailed,)), name=name)

    def _dispatched(self, batch: Sequence[DispatchRequest]) -> None:
        self.marks.dispatched(self._ctx.store.dispatched_end, len(batch), batch[0].store_timestamp)

    async def _search_master(self) -> None:
        """A replica without a link registers as soon as a new master has: the answer has the address of its HA port.

        So does one with a link whose name server has forgotten the master: its metadata come from there.
        """
        while True:
            await asyncio.sleep(_MASTER_SEARCH_S)
            if self._ctx.is_master or self.role_change.is_running:
                continue
            self.following.use_known_master()  # an operator may have set another haMasterAddress
            if self.replica.status.is_following and self._ctx.master_address is not None:
                continue
            masters = await self.members.masters()
            if masters and self._ctx.master_address not in masters:
                self.register.register_soon()


def fetched_kinds(ctx: BrokerContext) -> Sequence[FetchedKind]:
    """Accounts, if this broker checks them and has one to ask with."""
    table, own, access = ctx.tables.accounts, ctx.settings.own_account, ctx.conf.access
    if access.plain_acl and own:
        return [PlainAclSync(plain_acl_home(access, ctx.conf.path or "broker.conf"))]
    return [AccountSync(table, parse_account(own).secret_key)] if table.in_use and own else []
