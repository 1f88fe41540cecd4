"""One history: a group under load, faults and operators, then calm; everything follows from the seed."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from tests.simulation.checker import Violation
from tests.simulation.etcd_model import HOST as ETCD
from tests.simulation.etcd_model import EtcdModel
from tests.simulation.group import Group, Shape
from tests.simulation.mutants import MUTANTS, NO_MUTANT, Mutant
from tests.simulation.world import World

from twinlog.failover.comparisons import Delete, Put
from twinlog.failover.records import PAUSE, SWITCH, Keys, Pause, Switch, encode_record, read_keys
from twinlog.failover.transactions import Transaction
from twinlog.failover.view import Role

FAULTS_MS, CALM_MS = 22_000, 14_000
COMMAND = "python -m tests.simulation --seed {seed}"


@dataclass(frozen=True)
class Outcome:
    seed: int
    violation: str | None
    acks: int
    epochs: int
    events: int

    def __str__(self) -> str:
        what = self.violation or "all held"
        return f"seed {self.seed}: {what} ({self.acks} acknowledgements, {self.epochs} epochs, {self.events} events)"


def run_history(seed: int, mutant: str = "", *, tracing: bool = False) -> Outcome:
    world = World(seed, tracing=tracing)
    focus = MUTANTS.get(mutant, NO_MUTANT)
    group = Group(world, replace(_shape(world.random), mutant=mutant, **focus.shape))
    history = HistoryRun(world, group, focus)
    violation = None
    try:
        history.run()
    except Violation as error:
        command = COMMAND.format(seed=seed) + (f" --mutant '{mutant}'" if mutant else "")
        violation = f"{error}; replay with: {command} --trace"
    keys = newest_keys(group.etcd)
    return Outcome(seed, violation, group.checker.acks, keys.epoch, world.events)


def newest_keys(etcd: EtcdModel) -> Keys:
    return read_keys(etcd.entries.values(), etcd.revision)


def _shape(rng: random.Random) -> Shape:
    syncs_first = rng.random() < 0.5
    brokers = rng.choice((2, 3, 3, 3, 3, 4))
    size_min = rng.choice((1, 2, 2)) if syncs_first else 2
    return Shape(
        brokers=brokers,
        size_min=min(size_min, brokers),
        awaits_replicas=rng.random() < 0.85,
        syncs_first=syncs_first,
    )


class HistoryRun:
    def __init__(self, world: World, group: Group, focus: Mutant) -> None:
        self.world = world
        self.group = group
        self.names = list(group.hosts)
        self.numbers = itertools.count(1)
        self.weak = world.random.choice(self.names)  # the machine whose power fails, if reports are not synced
        self.is_calm = False
        often = ("kill", "cut_power", "pause", "part", "lose_etcd", "stop_etcd", "slow", "part_replica")
        names = focus.faults or (*often, *often, "operator", "operator", "disaster", "kill_shortly", "hear_no_etcd")
        self._faults = [getattr(self, f"_{name}") for name in names]
        self.pause_ms = world.random.choice((500, 1000, 1800))  # between two faults
        group.network.late = world.random.choice((0.003, 0.01, 0.05))
        group.etcd.stale = world.random.choice((0.0, 0.0, 0.1))
        if focus.faults:
            self.pause_ms, group.network.late = focus.pause_ms, focus.late

    def run(self) -> None:
        self.begin()
        self.world.after(self.world.random.uniform(4_000, 9_000), self._fault)
        self.world.run_until(FAULTS_MS)
        self.end()

    def begin(self) -> None:
        """The brokers start, and producers send."""
        for name in self.names:
            self.world.after(self.world.random.uniform(0, 3000), self.group.start, name)
        self.world.after(0, self._load)

    def end(self) -> None:
        """All faults end; after a while sends must be acknowledged again."""
        self._heal()
        self.world.run_until(self.world.now + CALM_MS)
        self._check_liveness()

    # -- load ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        rng = self.world.random
        masters = [one for one in self.names if (p := self.group.process(one)) and p.role is Role.MASTER]
        for name in masters or [rng.choice(self.names)]:
            process = self.group.process(name)
            if process is None:
                continue
            for _ in range(rng.choice((1, 1, 1, 4))):
                process.run(process.leading.send, next(self.numbers))
            if rng.random() < 0.3 and (masters or rng.random() < 0.3):
                process.run(process.following.consume, rng.randint(1, 5), process.disk.epochs.own if masters else 0)
            if rng.random() < 0.1:
                process.disk.offsets = {key: dict(row) for key, row in process.offsets.rows.items()}
        self.world.after(rng.expovariate(1 / 180), self._load)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.is_calm:
            return
        rng = self.world.random
        name, duration = rng.choice(self.names), rng.choice((300, 1500, 3500, 7000)) * rng.uniform(0.5, 1.5)
        leader = newest_keys(self.group.etcd).leader
        if leader is not None and rng.random() < 0.5:
            name = leader.member
        kind = rng.choice(self._faults)
        kind(name, duration)
        self.world.after(rng.expovariate(1 / self.pause_ms), self._fault)

    def _kill(self, name: str, duration_ms: float) -> None:
        self.group.kill(name)
        self.world.after(duration_ms, self.group.start, name)

    def _cut_power(self, name: str, duration_ms: float) -> None:
        if not self.group.shape.syncs_first:
            name = self.weak
        self.group.cut_power(name)
        self.world.after(duration_ms, self.group.start, name)

    def _part(self, name: str, duration_ms: float) -> None:
        rng = self.world.random
        others = [one for one in (*self.names, ETCD) if one != name]
        for other in others if rng.random() < 0.3 else [rng.choice((rng.choice(others), ETCD))]:
            way = rng.choice(("both", "there", "back"))
            self.world.trace(name, f"is parted from {other} ({way}) for {duration_ms:.0f} ms")
            if way != "back":
                self.group.network.block(name, other, duration_ms)
            if way != "there":
                self.group.network.block(other, name, duration_ms)

    def _kill_shortly(self, name: str, _: float) -> None:
        self._kill(name, self.world.random.uniform(20, 800))

    def _pause(self, name: str, duration_ms: float) -> None:
        self.group.pause(name, duration_ms)

    def _part_replica(self, name: str, duration_ms: float) -> None:
        """A replica and its master do not reach each other; etcd reaches both."""
        leader = newest_keys(self.group.etcd).leader
        if leader is not None:
            for other in self.world.random.sample(self.names, self.world.random.randint(1, 2)):
                self.group.network.block(leader.member, other, duration_ms)

    def _lose_etcd(self, name: str, duration_ms: float) -> None:
        self.world.trace(name, f"does not reach etcd for {duration_ms:.0f} ms")
        self.group.network.block(name, ETCD, duration_ms)

    def _hear_no_etcd(self, name: str, duration_ms: float) -> None:
        """What it asks for is done, but it gets no answer."""
        self.group.network.block(ETCD, name, min(duration_ms, 2500))

    def _stop_etcd(self, _: str, duration_ms: float) -> None:
        self.world.trace(ETCD, f"is away for {duration_ms:.0f} ms")
        self.group.etcd.go_down(duration_ms)

    def _disaster(self, *_: object) -> None:
        """Rarely, etcd loses all of its data, after every broker knows of some master."""
        disks = [host.disk for host in self.group.hosts.values()]
        if self.world.random.random() < 0.15 and all(disk.epochs.seen for disk in disks):
            self.world.trace(ETCD, "loses its data")
            self.group.etcd.wipe()

    def _slow(self, _: str, duration_ms: float) -> None:
        network = self.group.network
        network.slow, network.loss = self.world.random.choice(((20.0, 0.0), (3.0, 0.05), (1.0, 0.15)))
        self.world.after(duration_ms, self._fast)

    def _fast(self) -> None:
        self.group.network.slow, self.group.network.loss = 1.0, 0.0

    def _operator(self, name: str, _: float) -> None:
        etcd, rng = self.group.etcd, self.world.random
        keys = newest_keys(etcd)
        what = rng.choice(("switchover", "switchover", "failover", "force", "pause", "resume"))
        if what == "pause":
            write = Put(PAUSE, encode_record(Pause(by="ops")))
        elif what == "resume":
            write = Delete(PAUSE)
        else:
            to = rng.choice((None, rng.choice(self.names))) if what == "switchover" else rng.choice(self.names)
            kind = "switchover" if what == "switchover" else "failover"
            self.wish(Switch(to=to, kind=kind, epoch=keys.epoch, force=what == "force"))
            return
        etcd.commit(Transaction((), (write,)))

    def wish(self, wish: Switch) -> None:
        self.world.trace("ops", str(wish))
        self.group.etcd.commit(Transaction((), (Put(SWITCH, encode_record(wish)),)))

    # -- calm ------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.is_calm = True
        self.world.trace("", "all faults end")
        self.group.network.heal()
        self.group.etcd.come_up()
        self.group.etcd.commit(Transaction((), (Delete(PAUSE),)))
        for name, host in self.group.hosts.items():
            host.paused_until = 0.0
            self.group.start(name)
        if self.group.etcd.cluster > 1 and newest_keys(self.group.etcd).leader is None:
            best = max(self.names, key=lambda name: len(self.group.hosts[name].disk.log))
            self.wish(Switch(to=best, kind="failover", epoch=newest_keys(self.group.etcd).epoch, force=True))

    def _check_liveness(self) -> None:
        """In calm weather there is a master, and it acknowledges."""
        silent_ms = self.world.now - self.group.checker.last_ack_ms
        if silent_ms > 4_000:
            raise Violation(f"nothing was acknowledged for {silent_ms:.0f} ms, though all run and reach each other")
