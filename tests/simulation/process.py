"""One life of a simulated broker: the real `decide` in a small shell, as the broker's own service has it.

Everything in here is lost when the process ends; what survives is in `Disk` and in etcd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.following import Following
from tests.simulation.leading import Leading
from tests.simulation.mutants import mutated_view

from twinlog.failover.comparisons import Put
from twinlog.failover.decide import decide
from twinlog.failover.records import Entry, Keys, Member, State, encode_record, member_name, read_keys
from twinlog.failover.transactions import Transaction, transaction
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
    SeeEpoch,
    Step,
    StepDown,
    View,
    Watched,
    WriteInSync,
)
from twinlog.metadata.offsets import OffsetTable
from twinlog.replication.master_epoch import MasterEpochs, OldEpoch
from twinlog.replication.role_plan import Step as RoleStep
from twinlog.replication.role_plan import plan_role_change

if TYPE_CHECKING:
    from tests.simulation.group import Group, Host

_TICK_MS, _READ_MS = 250, 400


class Process:
    def __init__(self, group: Group, host: Host) -> None:
        self.group = group
        self.host = host
        self.name = host.name
        self.disk = host.disk
        self.world = group.world
        self.mutant = group.shape.mutant
        self.is_alive = True
        self.role = Role.REPLICA
        self.lease = 0
        self.lease_until_ms = 0
        self.keys: Keys | None = None
        self.watched = Watched()
        self.handing_to: str | None = None
        self.offsets = OffsetTable()
        self.following = Following(self)
        self.leading = Leading(self)
        self._is_busy = False
        self._waits = {"read": False, "lease": False, "publish": False}
        self._read_ms = self._kept_ms = self._published_ms = -(1 << 40)
        self._published: Member | None = None
        self._cluster = 0

    # -- life ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        disk = self.disk
        if disk.cut_intent is not None:  # what a kill interrupted is finished before anything else
            disk.cut(disk.cut_intent)
            disk.cut_intent = None
        disk.epochs = disk.epochs.following()
        self.offsets.adopt({key: dict(row) for key, row in disk.offsets.items()}, None)
        self.offsets.follow()
        self.later(self.world.random.uniform(0, _TICK_MS), self._tick)

    def die(self, *, quietly: bool) -> None:
        self.is_alive = False
        self.following.close(quietly=quietly)
        self.leading.close_links(quietly=quietly)

    def clock_ms(self) -> int:
        """The clock of this machine, which does not jump; its rate is not exact."""
        return int(self.world.now * self.host.rate + self.host.start_ms)

    def later(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self.world.after(delay_ms, self.run, call, *arguments)

    def run(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call it in this process: not after its end, and only when it is not stopped."""
        if not self.is_alive:
            return
        if self.world.now < self.host.paused_until:
            self.world.after(self.host.paused_until - self.world.now, self.run, call, *arguments)
            return
        call(*arguments)

    # -- etcd ------------------------------------------------------------------------------------------------------

    def ask_etcd(self, ask: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        self.group.etcd.request(self.name, ask, lambda result: self.run(answer, result))

    def _tick(self) -> None:
        now_ms = self.clock_ms()
        self.leading.tick(now_ms)
        self.following.tick(now_ms)
        if now_ms - self._kept_ms >= self.group.rules.lease_ms // 4 and not self._waits["lease"]:
            self._keep_lease(now_ms)
        if now_ms - self._read_ms >= _READ_MS:
            self.read()
        if now_ms - self._published_ms >= 1000 and self.keys is not None:
            self._publish(self._published.state if self._published is not None else "replica")
        self.step()
        self.later(_TICK_MS / self.host.rate, self._tick)

    def _keep_lease(self, sent_ms: int) -> None:
        self._kept_ms = sent_ms
        self._waits["lease"] = True
        etcd, lease, lease_ms = self.group.etcd, self.lease, self.group.rules.lease_ms

        def answered(result: Any) -> None:
            self._waits["lease"] = False
            if result is None:
                return
            if result is False:  # the lease has ended
                self.lease, self.lease_until_ms = 0, 0
                self._kept_ms = -(1 << 40)
            else:
                self.lease = lease or result
                begun_ms = self.clock_ms() + lease_ms if self.mutant == "lease valid too long" else sent_ms
                self.lease_until_ms = begun_ms + lease_ms - lease_ms // 4
                self.leading.confirm()
            self.step()

        self.ask_etcd(etcd.grant if not lease else lambda: etcd.keep_alive(lease), answered)

    def read(self) -> None:
        if not self._waits["read"]:
            self._waits["read"] = True
            self._read_ms = self.clock_ms()
            self.ask_etcd(self.group.etcd.read, self._was_read)

    def _was_read(self, result: tuple[list[Entry], int, int] | None) -> None:
        self._waits["read"] = False
        if result is None:
            return
        entries, revision, cluster = result
        if self.keys is None or cluster != self._cluster or revision > self.keys.revision:
            self.keys, self._cluster = read_keys(entries, revision), cluster
        self.watched = self.watched.saw(self.keys, self.clock_ms())
        self.leading.set_was_read(self.keys)
        self.step()

    def _publish(self, state: State) -> None:
        record = Member(
            address=self.name,
            ha_address=self.name,
            broker_id=1,
            log_start=0,
            log_end=len(self.disk.log),
            epoch=self.disk.epochs.seen,
            state=state,
            whole=self.disk.is_whole,
        )
        mine = self.keys.members.get(self.name) if self.keys is not None else None
        if record == mine or self._waits["publish"] or not self.lease:
            return
        self._published, self._published_ms = record, self.clock_ms()
        self._waits["publish"] = True
        put = Transaction((), (Put(member_name(self.name), encode_record(record), self.lease),))

        def answered(_: Any) -> None:
            self._waits["publish"] = False
            self.read()

        self.ask_etcd(lambda: self.group.etcd.commit(put), answered)

    # -- deciding --------------------------------------------------------------------------------------------------

    def view(self) -> View:
        leading, disk = self.leading, self.disk
        is_master = self.role is Role.MASTER
        return View(
            me=self.name,
            address=self.name,
            ha_address=self.name,
            role=self.role,
            epochs=disk.epochs,
            log_end=len(disk.log),
            whole=disk.is_whole,
            lease=self.lease,
            lease_until_ms=self.lease_until_ms,
            keys=self.keys,
            watched=self.watched,
            following=self.following.told,
            in_sync=leading.in_sync,
            replicas=leading.replicas(self.clock_ms()) if is_master else {},
            acknowledged=leading.acknowledged,
            handing_to=self.handing_to,
            refused_ms=leading.refused_ms,
        )

    def step(self) -> None:
        if self._is_busy or self.role is Role.CHANGING:
            return
        view = mutated_view(self.mutant, self.view())
        steps = decide(view, self.clock_ms(), self.group.rules)
        if steps:
            self._carry_out(steps[0], view)
            self.group.stepped(self.name)

    def _carry_out(self, step: Step, view: View) -> None:
        self.world.trace(self.name, str(step))
        match step:
            case Publish(state):
                self._published_ms = -(1 << 40)
                self._publish(state)
            case SeeEpoch(epoch):
                self.disk.epochs = self.disk.epochs.saw(epoch)
                self.later(0, self.step)
            case Follow(member, _, _, epoch):
                if self.mutant != "ignore a higher epoch":
                    self.disk.epochs = self.disk.epochs.saw(epoch)
                self.handing_to = None
                self.following.follow(member, epoch)
            case Promote(epoch):
                self._change_role("SYNC_MASTER", epoch, view)
            case StepDown(_, to):
                self.leading.refuse()
                self.handing_to = to
                self._change_role("SLAVE", 0, view)
            case RefuseSends():
                self.leading.refused_ms = self.clock_ms()
            case ResumeSends():
                self.leading.refused_ms = None
            case WriteInSync(members):
                self.leading.write_begins(members)
                self._commit(step, view)
            case Campaign() | Resign() | EndSwitch():
                self._commit(step, view)

    def _commit(self, step: Campaign | Resign | WriteInSync | EndSwitch, view: View) -> None:
        self._is_busy = True
        wanted = transaction(step, view, int(self.world.now))
        if self.mutant == "campaign without comparing" and isinstance(step, Campaign):
            wanted = Transaction((), wanted.writes)

        def answered(result: tuple[bool, int] | None) -> None:
            self._is_busy = False
            self.world.trace(self.name, f"{type(step).__name__}: {result}")
            if isinstance(step, WriteInSync):
                self.leading.write_ended(step.members, result)
            self.read()

        self.ask_etcd(lambda: self.group.etcd.commit(wanted), answered)

    # -- changing role ---------------------------------------------------------------------------------------------

    def _change_role(self, role: str, epoch: int, view: View) -> None:
        """The real plan, one step after the other; the process may end between any two of them."""
        old = "SLAVE" if role != "SLAVE" else "SYNC_MASTER"
        self.role = Role.CHANGING
        self._next_role_step(list(plan_role_change(old, role)), epoch, view)

    def _next_role_step(self, steps: list[RoleStep], epoch: int, view: View) -> None:
        if not steps:
            self.read()
            return
        self._role_step(steps[0], epoch, view)
        self.group.stepped(self.name)
        if self.role is Role.REPLICA and steps[0] is RoleStep.TAKE_EPOCH:
            return  # the epoch is not above all that this broker has seen: it goes on as a replica
        self.later(self.world.random.expovariate(0.2), self._next_role_step, steps[1:], epoch, view)

    def _role_step(self, step: RoleStep, epoch: int, view: View) -> None:
        match step:
            case RoleStep.STOP_FOLLOWING:
                self.following.stop()
            case RoleStep.LEAD_OFFSETS:
                self.offsets.lead()
            case RoleStep.TAKE_EPOCH:
                try:
                    self.disk.epochs = self.disk.epochs.promoted(epoch)
                except OldEpoch:
                    self.role = Role.REPLICA
                    if self.mutant == "ignore a higher epoch":
                        self.role, self.disk.epochs = Role.CHANGING, MasterEpochs(epoch, epoch)
            case RoleStep.ACCEPT_SENDS:
                self.role = Role.MASTER
                self.disk.now_whole()
                self.leading.begin(view)
                self.group.checker.promoted(self.name, self.host.life, epoch)
            case RoleStep.SETTLE_ANSWERS:
                self.leading.settle()
            case RoleStep.FLUSH:
                self.disk.sync()
            case RoleStep.DROP_REPLICAS:
                self.leading.close_links(quietly=False)
            case RoleStep.FOLLOW_OFFSETS:
                self.offsets.follow()
                self.disk.epochs = self.disk.epochs.following()
            case RoleStep.START_FOLLOWING:
                self.role = Role.REPLICA
            case _:
                pass
