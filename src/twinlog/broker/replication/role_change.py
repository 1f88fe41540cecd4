"""Carries out the steps of a change of role, which `replication/role_plan.py` puts in order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from twinlog.broker.admin.live_conf import write_settings
from twinlog.broker.replication.member_watch import IDENTITY_S_MAX
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.replication.errors import ReplicationError
from twinlog.replication.metadata.kinds import TOPICS
from twinlog.replication.role_plan import STEP_DOWN_AT_ONCE, Step, plan_role_change
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.naming.member_groups import MemberGroup
    from twinlog.broker.replication.replication_service import ReplicationService

log = get_logger(__name__)
_SETTLE_S_MAX = 10.0
_FEED_S_MAX = 30.0  # for a replica that is behind; meanwhile no broker accepts sends
_REGISTER_S_MAX = 10.0  # a name server first asks the broker that was master before
_REPORT_S_MAX = 1.0  # then check again whether a replica is still connected
_ROUND_MS_MAX = 3_000  # a round of metadata may take so long, and knows what was true when it began


class RoleChangeRefused(ReplicationError):
    """A role that this broker cannot take as it is configured."""


class RoleChange:
    """One change of role at a time."""

    def __init__(self, ctx: BrokerContext, group: MemberGroup, service: ReplicationService) -> None:
        self._ctx = ctx
        self._group = group
        self._service = service
        self._lock = asyncio.Lock()
        self._is_unfinished = False  # a step failed: the next change takes all steps again
        self._successor: str | None = None
        self._epoch: int | None = None  # that the next master takes; None: one above all that were seen

    @property
    def is_running(self) -> bool:
        return self._lock.locked()

    async def change_to(
        self, role: str, broker_id: int | None = None, *, force: bool = False, successor: str | None = None
    ) -> list[Step]:
        """Become `role` while running; returns the steps that were taken.

        `force`: step down although no replica is connected. `successor`: the store instance of the replica that gets
        the rest of the log; otherwise the nearest one does.
        A master has broker id 0. A replica that was given no id takes the lowest one that is free. The
        configuration file, if there is one, follows, so that a restart does not bring a second master.
        """
        _check_request(role, broker_id)
        if self._ctx.master_is_chosen:
            raise RoleChangeRefused(
                "etcd decides who is master of this group; use `twinlog failover switchover`, or remove failoverEtcd "
                "from the configuration of all its brokers"
            )
        async with self._lock:
            settings = self._ctx.settings
            new_id = 0 if role != "SLAVE" else broker_id or settings.broker_id or await self._group.free_id()
            steps = plan_role_change(settings.broker_role, role)
            if not steps and self._is_unfinished:
                await self._service.following.stop()
                steps = plan_role_change("ASYNC_MASTER" if role == "SLAVE" else "SLAVE", role)
            if not steps and new_id != settings.broker_id:
                raise RoleChangeRefused(
                    f"this replica keeps its brokerId={settings.broker_id} while it runs; write brokerId={new_id} into "
                    "its configuration file and restart it"
                )
            if settings.broker_role != "SLAVE" and Step.FEED_REPLICAS in steps and not force:
                self._check_successor(successor)
            if Step.STOP_FOLLOWING in steps:
                await self._check_no_master(role)
            self._successor = successor
            if Step.STOP_FOLLOWING in steps:
                async with self._service.successors.in_doubt():
                    await self._take_steps(steps, role, new_id)
                    await self._check_alone(role, settings.broker_id)
            else:
                await self._take_steps(steps, role, new_id)
            if steps:
                await write_settings(self._ctx.conf, {"brokerRole": role, "brokerId": str(new_id)})
            return list(steps)

    async def _take_steps(self, steps: Sequence[Step], role: str, broker_id: int) -> None:
        self._is_unfinished = bool(steps) or self._is_unfinished
        for step in steps:
            log.info("changing role", to=role, step=step.name, meaning=step.value)
            await self._carry_out(step, role, broker_id)
        self._is_unfinished = False

    async def _check_alone(self, role: str, old_id: int) -> None:
        """Become a replica again if another one was promoted in the same moment; nothing was acknowledged yet.

        A name server keeps the first of two masters that both answer, so only the other one finds a rival there.
        """
        rival = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REGISTER_S_MAX):
                await self._service.register.register_all()
                rival = await self._group.rival(0, patiently=True)
        if rival is not None:
            await self._take_steps(plan_role_change(role, "SLAVE"), "SLAVE", old_id)
            raise RoleChangeRefused(
                f"{rival} became master of {self._ctx.settings.broker_name} in the same moment; this broker is its "
                "replica. If that is not what you want: `twinlog replication switch`"
            )

    def _check_successor(self, successor: str | None) -> None:
        """Refuse to step down when nobody could take over."""
        name = self._ctx.settings.broker_name
        if successor is not None and not self._held(successor):
            raise RoleChangeRefused(f"the replica that is to take over {name} is not connected; look at its log")
        if not self._held(None):
            raise RoleChangeRefused(
                f"no replica is connected: without this master, {name} takes no messages, and nobody else has its log; "
                "start a replica first, or step down all the same with `twinlog replication change-role --force`"
            )

    @property
    def is_unfinished(self) -> bool:
        """Whether a step of the last change failed."""
        return self._is_unfinished and not self.is_running

    async def promote(self, role: str, epoch: int) -> None:
        """Become master with this epoch, which etcd has given to this broker alone."""
        async with self._lock:
            self._epoch = epoch
            await self._take_steps(plan_role_change("SLAVE", role), role, 0)

    async def step_down(self, broker_id: int) -> None:
        """Become a replica at once: what waits is not acknowledged, and no replica is fed."""
        async with self._lock:
            await self._service.following.stop()  # if a change to master was not finished
            await self._take_steps(STEP_DOWN_AT_ONCE, "SLAVE", broker_id)

    async def _check_no_master(self, role: str) -> None:
        """Refuse to become a second master beside one that answers."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDENTITY_S_MAX):
                if (rival := await self._group.rival(0)) is not None:
                    raise RoleChangeRefused(
                        f"{rival} is the master of {self._ctx.settings.broker_name} and answers: two masters would "
                        f"acknowledge messages into different logs; stop it, or make it a SLAVE first, then {role} here"
                    )

    async def _carry_out(self, step: Step, role: str, broker_id: int) -> None:
        ctx, service = self._ctx, self._service
        actions: dict[Step, Callable[[], Awaitable[None] | None]] = {
            Step.STOP_METADATA_SYNC: service.following.leave_master,
            Step.STOP_FOLLOWING: service.following.stop,
            Step.LEARN_TOPICS: self._learn_topics,
            Step.LEAD_OFFSETS: ctx.tables.offsets.lead,
            Step.STORE_AS_MASTER: lambda: ctx.store.change_role(role),
            Step.TAKE_EPOCH: self._take_epoch,
            Step.ACCEPT_SENDS: lambda: self._take_role(role, broker_id),
            Step.REFUSE_SENDS: lambda: self._take_role(role, broker_id),
            Step.SETTLE_ANSWERS: self._settle_answers,
            Step.END_ANSWERS: self._end_answers,
            Step.FEED_REPLICAS: self._feed_replicas,
            Step.FLUSH: self._flush,
            Step.DROP_REPLICAS: lambda: service.master.drop_all("this broker becomes a replica"),
            Step.STORE_AS_REPLICA: lambda: ctx.store.change_role("SLAVE"),
            Step.FOLLOW_OFFSETS: self._follow,
            Step.START_FOLLOWING: service.following.start,
            Step.REGISTER: service.register.register_soon,
        }
        pending = actions[step]()
        if pending is not None:
            await pending

    def _take_epoch(self) -> None:
        epoch = self._service.epochs.promote(self._epoch)
        self._ctx.topics.take_epoch(epoch, self._ctx.clock_ms())
        log.info("this broker is master in a new epoch", epoch=epoch)

    def _follow(self) -> None:
        self._ctx.tables.offsets.follow()
        self._service.epochs.follow()

    def _learn_topics(self) -> None:
        """Configure topics that the master created after the last round of metadata.

        A topic without configuration whose messages are older than the last round was deleted, and stays so.
        """
        ctx, store = self._ctx, self._ctx.store
        asked_ms = self._service.sync.status.kind(TOPICS.name).synced_ms - _ROUND_MS_MAX
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
        ctx, service = self._ctx, self._service
        if role == "SLAVE":
            if ctx.guard.is_valid:  # one that was replaced appends nothing, not even for the last time
                for listener in ctx.step_down_listeners:
                    listener()
        elif not ctx.is_master:
            ctx.term += 1
        service.send_demand.settling_role = ctx.settings.broker_role if role == "SLAVE" else None
        broker = dataclasses.replace(ctx.conf.broker, broker_role=role, broker_id=broker_id)  # type: ignore[arg-type]
        ctx.conf = dataclasses.replace(ctx.conf, broker=broker)
        if role != "SLAVE":
            ctx.store.role = role
        service.replica.broker_id = broker_id

    async def _settle_answers(self) -> None:
        """Let sends that wait get their answer; one that waits longer than its limit gets the answer of a timeout."""
        pending = self._ctx.pending_sends
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S_MAX):
                while (wait_s := pending.expires_in_s) is not None:
                    await asyncio.sleep(min(0.01, wait_s))
                    pending.expire()
        pending.expire_all()
        self._service.send_demand.settling_role = None

    def _end_answers(self) -> None:
        """This broker is a replica by now, so what the guard held back is not acknowledged."""
        self._ctx.pending_sends.expire_all()
        self._ctx.guard.free()
        self._service.send_demand.settling_role = None

    async def _feed_replicas(self) -> None:
        """Let the nearest replica take what it lacks, so that nothing acknowledged is on this broker only."""
        end, reported = self._ctx.store.log_end, self._service.send_demand.reported
        held: list[int] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FEED_S_MAX):
                while (held := self._held(self._successor)) and held[0] < end:
                    reported.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_REPORT_S_MAX):
                            await reported.wait()
        if held and held[0] < end:
            log.warning(
                "the nearest replica does not have all of the log; as a master it would refuse this broker",
                log_end=end,
                replica_end=held[0],
            )

    def _held(self, successor: str | None) -> list[int]:
        """What this replica has acknowledged, or every replica, the nearest first."""
        acks = self._service.master.acks
        return acks.acks() if successor is None else acks.of_replica(successor)

    async def _flush(self) -> None:
        await asyncio.to_thread(self._ctx.store.flush)


def _check_request(role: str, broker_id: int | None) -> None:
    if role not in ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"):
        raise RoleChangeRefused(f"{role!r} is not a role; use ASYNC_MASTER, SYNC_MASTER or SLAVE")
    if role == "SLAVE" and broker_id is not None and broker_id <= 0:
        raise RoleChangeRefused(f"a replica needs a brokerId above 0, not {broker_id}; give one with the new role")
    if role != "SLAVE" and broker_id:
        raise RoleChangeRefused(f"a master has brokerId=0, not {broker_id}; leave the id out")
