"""Replication within a broker: what runs in which role, and how the role changes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.atomic_file import replace_file
from twinlog.base.clock import monotonic_ms
from twinlog.base.file_modes import Modes
from twinlog.base.safe_files import read_file
from twinlog.broker.admin.live_conf import write_settings
from twinlog.broker.naming.member_groups import MemberGroup
from twinlog.broker.sends.pending_sends import Demand
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.busy_wait import BusyWait
from twinlog.replication.errors import IdentityTaken, ReplicationError
from twinlog.replication.master.log_marks import LogMarks
from twinlog.replication.master.master_service import MasterService
from twinlog.replication.master.replica_acks import replicas_needed
from twinlog.replication.replica.metadata_sync_service import ExtraKind, MetadataSyncService
from twinlog.replication.replica.replica_service import MasterAddresses, ReplicaIdentity, ReplicaService
from twinlog.replication.role_plan import Step, plan_role_change
from twinlog.store.errors import DispatchFailed, StoreUnusable, system_errors_as
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.naming.register_service import RegisterService
    from twinlog.net.pool import ConnectionPool
    from twinlog.store.dispatch import DispatchRequest

log = get_logger(__name__)
_MEMBERS_PERIOD_S = 10.0
_LOOK_PERIOD_S = 1.0  # while there is no link to a master
_SETTLE_S_MAX = 10.0
_FEED_S_MAX = 30.0  # for a replica that is behind; meanwhile nobody accepts sends
_IDENTITY_S_MAX = 1.0
_ROUND_MS_MAX = 3_000  # a round of metadata knows what was so when it was asked, up to this before it ended
_LAST_SYNC_S_MAX = 1.0  # a master that is gone must not delay the one that follows it
_SYNC_TASK = MetadataSyncService.__name__


class RoleChangeRefused(ReplicationError):
    """A role that this broker cannot take as it is configured."""


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
        self._pool = pool
        self._register = register
        self._group = MemberGroup(ctx, pool, lambda: register.name_servers)
        settings = ctx.settings
        self.master = MasterService(
            lambda: ctx.conf.replication,
            ctx.store.commit_log,
            bind_address=settings.bind_address,
            clock_ms=monotonic_ms,
            accepts=lambda: ctx.is_master,
            on_join=self._look_for_members,
            on_acks=self._acknowledged,
        )
        self.instance = _instance(Path(ctx.conf.store.root_dir), ctx.conf.store.modes)
        identity = ReplicaIdentity(settings.cluster_name, settings.broker_name, settings.broker_id, self.instance)
        self.replica = ReplicaService(lambda: ctx.conf.replication, ctx.store, identity, pool, clock_ms=ctx.wall_ms)
        self.sync = MetadataSyncService(
            lambda: ctx.conf.replication,
            ctx.tables,
            pool,
            own_address=settings.address,
            clock_ms=ctx.wall_ms,
            extra_kinds=extra_kinds,
        )
        self._tasks: asyncio.TaskGroup | None = None
        self._following: list[asyncio.Task[None]] = []
        self._busy_wait = BusyWait(lambda: ctx.conf.replication.busy_wait_seconds)
        self._changing = asyncio.Lock()
        self._half_changed = False  # a change of role has begun and did not end
        self._settling_role: str | None = None  # the role in which sends were accepted that wait for their answers
        self._members_wanted = asyncio.Event()
        self._members_known = False
        self._reported = asyncio.Event()
        self.identity_conflicts = 0
        ctx.pending_sends.replicas = self
        ctx.wake_replicas, ctx.expect_reports = self.master.wake, self._expect_reports
        ctx.change_role = self.change_role
        ctx.master_listeners.append(self._master_is_known)
        self.marks = LogMarks(ctx.store.log_end)
        ctx.store.on_dispatch.append(self._dispatched)

    def listen(self) -> None:
        self.master.listen()

    async def run(self) -> None:
        self._announce_demand()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self.master.run(), name="MasterService")
                self._start_fenced("MemberCount", self._count_members)
                self._start_fenced("MasterSearch", self._look_for_master)
                self._start_fenced("IdentityWatch", self._watch_identity)
                if not self._ctx.is_master:
                    self._start_following()
        finally:
            await self._stop_following()

    def _start_fenced(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        assert self._tasks is not None, "tasks are started while the broker runs"
        # A hole in the queues is acknowledged data that nobody can read: that error ends the broker.
        return self._tasks.create_task(self._ctx.fence.run(name, work, raises=(DispatchFailed,)), name=name)

    def _dispatched(self, batch: Sequence[DispatchRequest]) -> None:
        self.marks.dispatched(self._ctx.store.dispatched_end, len(batch), batch[0].store_timestamp)

    # -- what a SYNC master's sends wait for -----------------------------------------------------

    def demand(self, end: int) -> Demand:
        """What the record that ends at `end` needs of the replicas."""
        ctx, settings = self._ctx, self._ctx.conf.replication
        needed, log_end = self.replicas_needed, ctx.store.log_end
        if needed == 0 or self.master.acks.safe_end(needed, log_end) >= end:
            return Demand.NOTHING
        near = self.master.acks.in_sync(end, settings.gap_bytes_max)
        return Demand.WAIT if near >= needed else Demand.UNAVAILABLE

    def missed(self, end: int) -> None:
        """A send gave up waiting for `end`."""
        self.master.missed(end)

    def _acknowledged(self) -> None:
        ctx = self._ctx
        self._reported.set()
        role = self._settling_role or ctx.settings.broker_role
        needed = replicas_needed(role, ctx.conf.replication.in_sync_replicas)
        if needed:
            ctx.pending_sends.replicated(self.master.acks.safe_end(needed, ctx.store.log_end))
            if not ctx.pending_sends.waits_for_replicas:
                self._busy_wait.arrived()

    def _expect_reports(self) -> None:
        """After each chunk of requests: a replica that keeps up reports sooner than a sleeping loop would wake up."""
        if self._ctx.pending_sends.waits_for_replicas:
            self._busy_wait.expect()

    @property
    def replicas_needed(self) -> int:
        """How many replicas a send waits for."""
        return replicas_needed(self._ctx.settings.broker_role, self._ctx.conf.replication.in_sync_replicas)

    def _announce_demand(self) -> None:
        role, given = self._ctx.settings.broker_role, self._ctx.conf.replication.in_sync_replicas
        if role == "SYNC_MASTER":
            needed = self.replicas_needed
            why = "inSyncReplicas is not set" if given is None else f"inSyncReplicas={given} counts the master"
            log.info("a send is acknowledged when replicas hold it", replicas=needed, because=why)

    # -- how many replicas there are at all ------------------------------------------------------

    def _look_for_members(self) -> None:
        if self.master.acks.registered_replicas is None and self._register.name_servers:
            self.master.acks.registered_replicas = 0  # until a name server has said how many there are
        self._members_wanted.set()

    async def _count_members(self) -> None:
        """Ask the name server how many replicas this broker has: Java connections count no further than that."""
        while True:
            self._members_wanted.clear()
            if self._ctx.is_master and self.master.acks.rows():
                await self._ask_for_members()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MEMBERS_PERIOD_S):
                    await self._members_wanted.wait()

    async def _ask_for_members(self) -> None:
        own = self._ctx.settings.address
        known = [members for members in await self._group.members() if members.get(0) == own]  # else: it just started
        counts = [sum(broker_id > 0 for broker_id in members) for members in known]
        if counts:
            self._members_known = True
            self.master.acks.registered_replicas = max(counts)
        elif not self._members_known:
            self.master.acks.registered_replicas = None  # nobody can tell: connections count as they do in Java
        self._acknowledged()

    async def check_identity(self) -> None:
        """IdentityTaken when another broker serves under this name and id; nothing else is a reason not to start."""
        await self._ctx.fence.attempt("IdentityWatch", self._check_identity, raises=(IdentityTaken,))

    async def _check_identity(self) -> None:
        settings = self._ctx.settings
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDENTITY_S_MAX):
                if (rival := await self._group.rival(settings.broker_id)) is not None:
                    raise IdentityTaken(settings.broker_name, settings.broker_id, rival)

    async def _watch_identity(self) -> None:
        """Say so when a second broker of this identity appears while this one runs: its name server was away."""
        while True:
            await asyncio.sleep(_MEMBERS_PERIOD_S)
            try:
                await self._check_identity()
            except IdentityTaken as taken:
                self.identity_conflicts += 1
                log.error("two brokers have one identity", reason=str(taken))

    async def _look_for_master(self) -> None:
        """A replica without a link registers as soon as a new master has: the answer tells where its HA port is.

        So does one with a link whose name server has forgotten the master: its metadata come from there.
        """
        while True:
            await asyncio.sleep(_LOOK_PERIOD_S)
            if self._ctx.is_master or self._changing.locked():
                continue
            self._master_is_known()  # an operator may have set another haMasterAddress
            if self.replica.status.is_following and self._ctx.master_address is not None:
                continue
            masters = {members[0] for members in await self._group.members() if 0 in members}
            masters.discard(self._ctx.settings.address)
            if masters and self._ctx.master_address not in masters:
                self._register.register_soon()

    # -- following -------------------------------------------------------------------------------

    def _master_is_known(self) -> None:
        if self._ctx.is_master:
            return
        address = self._ctx.master_address
        self.replica.master_is_at(MasterAddresses(self._ctx.master_ha_address, address))
        self.sync.master_is_at(address)

    def _start_following(self) -> None:
        for service in (self.replica, self.sync):
            self._following.append(self._start_fenced(type(service).__name__, service.run))
        self._master_is_known()

    async def _stop_following(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        self._following.clear()

    # -- changing the role -----------------------------------------------------------------------

    async def change_role(self, role: str, broker_id: int | None = None) -> list[Step]:
        """Become `role` while running; returns the steps that were taken.

        A master has broker id 0. A replica that was given no id takes the lowest one that is free. The
        configuration file, if there is one, follows, so that a restart does not bring a second master.
        """
        if role not in ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"):
            raise RoleChangeRefused(f"{role!r} is no role; use ASYNC_MASTER, SYNC_MASTER or SLAVE")
        if role == "SLAVE" and broker_id is not None and broker_id <= 0:
            raise RoleChangeRefused(f"a replica needs a brokerId above 0, not {broker_id}; give one with the new role")
        if role != "SLAVE" and broker_id:
            raise RoleChangeRefused(f"a master has brokerId=0, not {broker_id}; leave the id out")
        async with self._changing:
            settings = self._ctx.settings
            new_id = 0 if role != "SLAVE" else broker_id or settings.broker_id or await self._group.free_id()
            steps = plan_role_change(settings.broker_role, role)
            if not steps and self._half_changed:  # a step failed before: take all of them again
                await self._stop_following()
                steps = plan_role_change("ASYNC_MASTER" if role == "SLAVE" else "SLAVE", role)
            if not steps and new_id != settings.broker_id:
                raise RoleChangeRefused(
                    f"this replica keeps its brokerId={settings.broker_id} while it runs; write brokerId={new_id} into "
                    "its configuration file and restart it"
                )
            if Step.STOP_FOLLOWING in steps:
                await self._check_no_master(role)
            self._half_changed = bool(steps) or self._half_changed
            for step in steps:
                log.info("changing role", to=role, step=step.name, meaning=step.value)
                await self._carry_out(step, role, new_id)
            self._half_changed = False
            if steps:
                await write_settings(self._ctx.conf, {"brokerRole": role, "brokerId": str(new_id)})
            return list(steps)

    async def _check_no_master(self, role: str) -> None:
        """Refuse to become a second master beside one that answers."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDENTITY_S_MAX):
                if (rival := await self._group.rival(0)) is not None:
                    raise RoleChangeRefused(
                        f"{rival} is the master of {self._ctx.settings.broker_name} and answers: two masters would "
                        f"acknowledge messages into different logs; stop it, or make it a SLAVE first, then {role} here"
                    )

    async def _carry_out(self, step: Step, role: str, broker_id: int) -> None:
        actions: dict[Step, Callable[[], Awaitable[None] | None]] = {
            Step.STOP_METADATA_SYNC: self._leave_master,
            Step.STOP_FOLLOWING: self._stop_following,
            Step.LEARN_TOPICS: self._learn_topics,
            Step.LEAD_OFFSETS: self._ctx.tables.offsets.lead,
            Step.STORE_AS_MASTER: lambda: self._ctx.store.change_role(role),
            Step.ACCEPT_SENDS: lambda: self._take_role(role, broker_id),
            Step.REFUSE_SENDS: lambda: self._take_role(role, broker_id),
            Step.SETTLE_ANSWERS: self._settle_answers,
            Step.FEED_REPLICAS: self._feed_replicas,
            Step.FLUSH: lambda: asyncio.to_thread(self._ctx.store.flush),  # type: ignore[dict-item, return-value]
            Step.DROP_REPLICAS: lambda: self.master.drop_all("this broker becomes a replica"),
            Step.STORE_AS_REPLICA: lambda: self._ctx.store.change_role("SLAVE"),
            Step.FOLLOW_OFFSETS: self._follow_offsets,
            Step.START_FOLLOWING: self._start_following,
            Step.REGISTER: self._register.register_soon,
        }
        pending = actions[step]()
        if pending is not None:
            await pending

    async def _leave_master(self) -> None:
        """Take over what changed since the last round, if the master still answers; then know no master any more.

        Without it, messages could be here whose topic is not.
        """
        for task in [one for one in self._following if one.get_name() == _SYNC_TASK]:
            self._following.remove(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SYNC_S_MAX):
                await self._ctx.fence.attempt(_SYNC_TASK, self.sync.sync)
        self._ctx.master_address = self._ctx.master_ha_address = None
        self.replica.forget_master()
        self.sync.master_is_at(None)

    def _learn_topics(self) -> None:
        """Configure topics that the master created and could not tell us of before it was gone.

        A topic without configuration whose messages are older than the last round was deleted, and stays so.
        """
        ctx, store = self._ctx, self._ctx.store
        asked_ms = self.sync.status.kind("topics").synced_ms - _ROUND_MS_MAX
        for topic in store.queues.topics():
            if topic in ctx.topics:
                continue
            ends = {queue: store.max_offset(topic, queue) for queue in store.queues.of_topic(topic)}
            newest_ms = max(
                (store.store_time_of(topic, queue, end - 1) for queue, end in ends.items() if end), default=0
            )
            if newest_ms >= asked_ms:
                queues = max(max(ends) + 1, 1 if topic.startswith("%") else ctx.settings.default_topic_queues)
                log.warning("a topic is configured anew from its messages", topic=topic, queues=queues)
                ensure_topic(ctx, topic, queues)

    def _take_role(self, role: str, broker_id: int) -> None:
        ctx = self._ctx
        if role == "SLAVE":
            for listener in ctx.step_down_listeners:
                listener()
        elif not ctx.is_master:
            ctx.term += 1
        self._settling_role = ctx.settings.broker_role if role == "SLAVE" else None
        broker = dataclasses.replace(ctx.conf.broker, broker_role=role, broker_id=broker_id)  # type: ignore[arg-type]
        ctx.conf = dataclasses.replace(ctx.conf, broker=broker)
        if role != "SLAVE":
            ctx.store.role = role
        self.replica.broker_id = broker_id

    async def _settle_answers(self) -> None:
        """Let sends that wait get their answer; whoever waits longer than its patience gets the timeout's."""
        pending = self._ctx.pending_sends
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S_MAX):
                while (wait_s := pending.expires_in_s) is not None:
                    await asyncio.sleep(min(0.01, wait_s))
                    pending.expire()
        pending.expire_all()
        self._settling_role = None

    async def _feed_replicas(self) -> None:
        """Let the nearest replica take what it lacks, so that nothing acknowledged is on this broker only."""
        end, acks = self._ctx.store.log_end, self.master.acks
        held: list[int] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FEED_S_MAX):
                while (held := acks.acks()) and held[0] < end:
                    self._reported.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_PERIOD_S):  # it may go away without a report
                            await self._reported.wait()
        if held and held[0] < end:
            log.warning(
                "the nearest replica does not have all of the log; as a master it would refuse this broker",
                log_end=end,
                replica_end=held[0],
            )

    def _follow_offsets(self) -> None:
        self._ctx.tables.offsets.follows_master = True


def _instance(root: Path, modes: Modes) -> str:
    """An id of this store directory, made once: by it a master knows its replica again."""
    path = root / "config" / "twinlogInstance"
    with system_errors_as(StoreUnusable, root):
        with contextlib.suppress(FileNotFoundError):
            text = read_file(path).decode().strip()
            if text:
                return text
        text = secrets.token_hex(16)
        replace_file(path, [f"{text}\n".encode()], modes)
    return text
