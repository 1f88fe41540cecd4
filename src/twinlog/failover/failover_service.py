"""Keeps this broker's lease in etcd, reads the keys of its group, and carries out what `decide` returns.

Two tasks: one renews the lease, whatever the other one waits for; the other one looks, decides and acts. The guard of
the broker gets the end of the lease with every renewal: nothing is acknowledged after it, even if both tasks hang.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog import __version__
from twinlog.base.clock import ticks_ms, wall_clock_ms
from twinlog.failover.ack_rule import AckRule
from twinlog.failover.behind import Behind
from twinlog.failover.decide import decide, explain
from twinlog.failover.etcd import EtcdError, LeaseGone
from twinlog.failover.in_sync import InSyncRules, InSyncState, Replica
from twinlog.failover.reasons import problem_text, why_not_master, why_not_safe
from twinlog.failover.records import Keys, Member, RecordBroken, State, encode_record, member_name
from twinlog.failover.tail_notes import TailNotes
from twinlog.failover.transactions import transaction
from twinlog.failover.view import (
    Campaign,
    EndSwitch,
    Follow,
    Promote,
    Publish,
    RefuseSends,
    Resign,
    ResumeSends,
    Role,
    Rules,
    SeeEpoch,
    Step,
    StepDown,
    View,
    Watched,
    WriteInSync,
)
from twinlog.replication.errors import ReplicationError
from twinlog.store.errors import StoreError
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.failover.group_keys import GroupKeys
    from twinlog.failover.host import Host
    from twinlog.settings.broker_conf import BrokerConf

log = get_logger(__name__)
_LOOK_S = 0.5
_LOOK_OFTEN_S = 0.15  # while there is no leader, or no link to it
_PUBLISH_MS = 1_000
_STEPS_MAX = 10  # in one turn; then the keys are read again after a pause
_REST_LEASES = 3  # lease times in which a broker that could not change its role leaves the leader key to others
_GONE_MS_MAX = 1_000  # a replica whose link is gone leaves the in-sync set, so that sends go on
_EXPECTED = (EtcdError, RecordBroken, ReplicationError, StoreError, OSError)
_LEASE, _KEYS = "lease", "keys"  # what a problem is about: a full etcd renews leases, and takes no keys
_UNFINISHED = StepDown("a change of role was not finished")


class FailoverService:
    """Runs until cancelled; then the lease is given back, so that another broker can take over at once."""

    def __init__(
        self,
        host: Host,
        group: GroupKeys,
        conf: Callable[[], BrokerConf],
        *,
        clock_ms: Callable[[], int] = ticks_ms,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._host = host
        self._group = group
        self._conf = conf
        self._clock_ms = clock_ms
        self._wall_ms = wall_ms
        self._lease = self._lease_until_ms = 0
        self._led_lease = 0  # on which this broker is master
        self._rests_until_ms = 0  # without a lease: it could not change its role
        self._keys: Keys | None = None
        self._watched = Watched()
        self._following: tuple[str, int] | None = None
        self._handing_to: str | None = None
        self._refused_ms: int | None = None
        self._rule: AckRule | None = None
        self._behind: Behind | None = None
        self._published: Member | None = None
        self._published_ms = 0
        self._tails = TailNotes(host, group, wall_ms)
        self._wake = asyncio.Event()
        self._problems: dict[str, str] = {}  # of the lease, and of the keys, as long as they last
        self._reason: str | None = None  # why there is no master, as it was logged last

    @property
    def rules(self) -> Rules:
        conf = self._conf()
        settings, needed = conf.replication, conf.replication.in_sync_replicas
        return Rules(
            lease_ms=conf.failover.lease_seconds * 1000,
            in_sync=InSyncRules(
                size_min=2 if needed is None else max(1, needed),
                behind_ms_max=settings.not_caught_up_ms_max,
                gone_ms_max=_GONE_MS_MAX,
                gap_bytes_max=settings.gap_bytes_max,
                awaits_replicas=conf.failover.master_role == "SYNC_MASTER",
            ),
        )

    @property
    def keys(self) -> Keys | None:
        """The newest read, for those who show it."""
        return self._keys

    def why_refused(self) -> str:
        """Why a send is not acknowledged now, for the remark of its answer."""
        host, problem = self._host, "; ".join(dict.fromkeys(self._problems.values()))
        if host.is_master and self._rule is not None:
            return why_not_safe(self._rule, host.replica_ends(), host.log().end, problem)
        return why_not_master(self._keys, host.member, problem, self._reason)

    async def run(self) -> None:
        tasks = [asyncio.create_task(work) for work in (self._keep_lease(), self._look_and_act())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # the error that ended it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._give_back()

    # -- the lease -----------------------------------------------------------------------------

    async def _keep_lease(self) -> None:
        while True:
            period_s = self._conf().failover.lease_seconds / 4
            began_ms = self._clock_ms()
            try:
                await self._renew(began_ms)
                pause_s = period_s
            except LeaseGone:
                self._lease = self._lease_until_ms = 0
                if self._led_lease:  # revoked, or etcd has lost it: another broker may lead already
                    self._host.lease(-1)
                pause_s = 0.0
            except EtcdError as error:
                self._report(_LEASE, error)
                pause_s = period_s / 4
            if self._clock_ms() > self._lease_until_ms:
                self._wake.set()
            await asyncio.sleep(max(0.0, pause_s - (self._clock_ms() - began_ms) / 1000))

    async def _renew(self, began_ms: int) -> None:
        """Renew the lease, or take a new one. It lasts from before the request was sent, less a margin for clocks."""
        ttl_s = self._conf().failover.lease_seconds
        if began_ms < self._rests_until_ms:
            return
        if lease := self._lease:
            lasts_s = await self._group.etcd.keep_alive(lease)
            if lease != self._lease:
                return  # given back meanwhile
        else:
            self._lease, lasts_s = await self._group.etcd.grant(ttl_s), ttl_s
            self._published = None
            self._wake.set()
        self._lease_until_ms = began_ms + lasts_s * 1000 - ttl_s * 250
        if self._led_lease == self._lease:
            self._host.lease(self._lease_until_ms)
        self._report(_LEASE)

    async def _give_back(self) -> None:
        """Nothing is acknowledged from now on, so another broker may lead at once."""
        lease, self._lease, self._lease_until_ms = self._lease, 0, 0
        if self._led_lease:
            self._host.lease(-1)
        if lease:
            with contextlib.suppress(EtcdError, TimeoutError):
                await self._group.etcd.revoke(lease)

    # -- looking -------------------------------------------------------------------------------

    async def _look_and_act(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._look()
                await self._act()
                await self._publish_changes()
                await self._tails.note(self._following)
                self._report(_KEYS)
            except _EXPECTED as error:
                self._report(_KEYS, error)
                with contextlib.suppress(*_EXPECTED):
                    await self._act_alone()
            is_calm = self._host.is_master or (
                self._keys is not None and self._keys.leader is not None and self._host.is_following
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if is_calm else _LOOK_OFTEN_S):
                    await self._wake.wait()

    async def _look(self) -> None:
        keys = self._keys = await self._group.read()
        self._watched = self._watched.saw(keys, self._clock_ms())
        if self._rule is not None and keys.in_sync is not None:
            self._use(self._rule.state.read(keys.in_sync.members, keys.in_sync_changed))

    def _view(self) -> View:
        host, own = self._host, self._host.log()
        return View(
            me=host.member,
            address=host.address,
            ha_address=host.ha_address,
            role=Role.CHANGING if host.is_unfinished else Role.MASTER if host.is_master else Role.REPLICA,
            epochs=host.epochs,
            log_end=own.end,
            priority=self._conf().failover.priority,
            whole=own.whole,
            lease=self._lease,
            lease_until_ms=self._lease_until_ms,
            keys=self._keys,
            watched=self._watched,
            following=self._following,
            in_sync=self._rule.state if self._rule is not None else InSyncState(),
            replicas=self._replicas(own.end),
            acknowledged=self._rule.acknowledged if self._rule is not None else 0,
            handing_to=self._handing_to,
            refused_ms=self._refused_ms,
        )

    def _replicas(self, log_end: int) -> dict[str, Replica]:
        if self._behind is None or self._rule is None:
            return {}
        return self._behind.update(
            self._rule.state.awaited - {self._host.member}, self._host.replica_ends(), log_end, self._clock_ms()
        )

    # -- acting --------------------------------------------------------------------------------

    async def _act(self) -> None:
        """Take one step after the other until there is none, or it has to be waited for."""
        for _ in range(_STEPS_MAX):
            if self._host.is_unfinished:
                await self._step_down(_UNFINISHED)
            view = self._view()
            steps = decide(view, self._clock_ms(), self.rules)
            if not steps:
                break
            if not await self._carry_out(steps[0], view):
                break
        self._explain()
        await self._return_to_master()

    async def _act_alone(self) -> None:
        """Without etcd: a master whose lease was not renewed steps down, and what was begun is finished."""
        if self._host.is_unfinished:
            await self._step_down(_UNFINISHED)
        steps = decide(self._view(), self._clock_ms(), self.rules)
        if steps and isinstance(steps[0], StepDown):
            await self._step_down(steps[0])

    async def _carry_out(self, step: Step, view: View) -> bool:
        """Whether to go on with the next step at once."""
        if not isinstance(step, Publish):
            log.info("failover", step=type(step).__name__, **_shown(step))
        match step:
            case Publish(state):
                await self._publish(self._record(state))
            case SeeEpoch(epoch):
                self._host.see_epoch(epoch)
            case Follow():
                self._host.see_epoch(step.epoch)
                self._host.follow(step.address, step.ha_address)
                self._following, self._handing_to = (step.member, step.epoch), None
                return True
            case Promote(epoch):
                try:
                    await self._promote(epoch)
                except _EXPECTED as error:
                    await self._rest(error)
                    raise
            case StepDown():
                await self._step_down(step)
            case RefuseSends(to):
                self._host.pause_sends(f"this broker hands over to {to}; send again, to the new master")
                self._refused_ms = self._clock_ms()
                return True
            case ResumeSends():
                self._host.pause_sends(None)
                self._refused_ms = None
                return True
            case WriteInSync(members):
                await self._write_in_sync(members, view)
            case Campaign() | Resign() | EndSwitch():
                if await self._group.transact(transaction(step, view, self._wall_ms())) is None:
                    log.info("failover: another broker was first", step=type(step).__name__)
                    return False
        await self._look()
        return True

    async def _promote(self, epoch: int) -> None:
        keys, host = self._keys, self._host
        assert keys is not None and keys.in_sync is not None
        state = InSyncState(frozenset(keys.in_sync.members), keys.in_sync_changed)
        self._rule = AckRule(host.member, self.rules.in_sync, state, host.log().end)
        self._behind = Behind(self._clock_ms())
        self._led_lease, self._following = self._lease, None
        host.acknowledge_by(self._rule)
        host.lease(self._lease_until_ms)
        await host.promote(self._conf().failover.master_role, epoch)

    async def _rest(self, error: Exception) -> None:
        """Give the leader key back: with a full disk, say, this broker would hold it for ever, and lead never."""
        if self._lease:
            log.error("this broker cannot change its role; others may lead", reason=str(error))
        self._rests_until_ms = self._clock_ms() + _REST_LEASES * self.rules.lease_ms
        await self._give_back()

    async def _step_down(self, step: StepDown) -> None:
        log.warning("this broker is master no more", why=step.why)
        self._led_lease = 0
        self._host.lease(-1)
        self._refused_ms, self._handing_to = None, step.to
        self._rule = self._behind = self._following = None
        try:
            await self._host.step_down()
        except _EXPECTED as error:
            await self._rest(error)
            raise

    async def _write_in_sync(self, members: frozenset[str], view: View) -> None:
        rule = self._rule
        assert rule is not None
        written = transaction(WriteInSync(members), view, self._wall_ms())
        self._use(rule.state.writing(members))
        revision = await self._group.transact(written)
        if revision is not None and rule is self._rule:
            gone, come = view.in_sync.members - members, members - view.in_sync.members
            log.warning("the in-sync set has changed", members=sorted(members), gone=sorted(gone), come=sorted(come))
            self._use(rule.state.written(members, revision))

    def _use(self, state: InSyncState) -> None:
        assert self._rule is not None
        if state != self._rule.state:
            self._rule.state = state
            self._host.acknowledge_by(self._rule)

    async def _return_to_master(self) -> None:
        """A replica that waits to join tries at once, and one whose log differs cuts it: the leader's log counts."""
        keys, host = self._keys, self._host
        if host.is_master or host.is_following or keys is None or keys.leader is None:
            return
        leader = keys.leader
        if self._following == (leader.member, leader.epoch):
            await host.cut_divergence(leader.address, leader.epoch)
            host.join_now()

    # -- this member's record ------------------------------------------------------------------

    def _record(self, state: State) -> Member:
        host, own = self._host, self._host.log()
        return Member(
            address=host.address,
            ha_address=host.ha_address,
            broker_id=host.broker_id,
            log_start=own.start,
            log_end=own.end,
            epoch=host.epochs.seen,
            priority=self._conf().failover.priority,
            state=state,
            whole=own.whole,
            version=__version__,
        )

    async def _publish_changes(self) -> None:
        """Write this member's record when it has changed, at most once a second."""
        if not self._lease or self._clock_ms() - self._published_ms < _PUBLISH_MS:
            return
        known = self._published or (self._keys.members.get(self._host.member) if self._keys is not None else None)
        if known is None:
            return
        record = self._record(known.state)  # written again if it is not known what was written on this lease
        if record != self._published:
            await self._publish(record)

    async def _publish(self, record: Member) -> None:
        await self._group.put(member_name(self._host.member), encode_record(record), lease=self._lease)
        self._published, self._published_ms = record, self._clock_ms()

    # -- reports -------------------------------------------------------------------------------

    def _report(self, what: str, error: Exception | None = None) -> None:
        """Log a problem of the lease or of the keys, with etcd or the disk, once, and its end."""
        if error is not None:
            if not self._problems:
                log.warning("failover cannot go on; a master stops when its lease ends", problem=str(error))
            self._problems[what] = problem_text(error)
        elif self._problems.pop(what, None) is not None and not self._problems:
            log.info("failover goes on")

    def _explain(self) -> None:
        reason = explain(self._view(), self._clock_ms(), self.rules) if not self._host.is_master else None
        if reason is not None and reason != self._reason:
            log.info("there is no master", why=reason)
        self._reason = reason


def _shown(step: Step) -> dict[str, object]:
    """The fields of a step, for a log line."""
    return {name: getattr(step, name) for name in step.__dataclass_fields__}
