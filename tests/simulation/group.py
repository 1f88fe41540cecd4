"""A group of simulated brokers: what they share, how they are started and stopped, and what is planted in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.checker import Checker
from tests.simulation.disk import Disk
from tests.simulation.etcd_model import EtcdModel
from tests.simulation.process import Process
from tests.simulation.world import Network, World

from twinlog.failover.in_sync import InSyncRules
from twinlog.failover.view import Rules
from twinlog.settings.replication import ReplicationSettings

LEASE_MS = 4_000


@dataclass(frozen=True)
class Shape:
    """What differs between histories from the start."""

    brokers: int = 3
    size_min: int = 2
    awaits_replicas: bool = True
    syncs_first: bool = True  # disks are synced before a report and before an acknowledgement
    mutant: str = ""

    @property
    def rules(self) -> Rules:
        in_sync = InSyncRules(
            size_min=self.size_min,
            behind_ms_max=3_000,
            gone_ms_max=1_500,
            gap_bytes_max=400,
            awaits_replicas=self.awaits_replicas,
        )
        return Rules(lease_ms=LEASE_MS, switch_ms_max=2_000, in_sync=in_sync)


@dataclass
class Host:
    """A machine: its disk, its clock, and the process that runs on it."""

    name: str
    disk: Disk = field(default_factory=Disk)
    rate: float = 1.0  # of its clock
    start_ms: float = 0.0  # of its clock
    paused_until: float = 0.0
    life: int = 0
    process: Process | None = None


class Group:
    def __init__(self, world: World, shape: Shape) -> None:
        rng = world.random
        self.world = world
        self.shape = shape
        self.rules = shape.rules
        self.network = Network(world)
        self.etcd = EtcdModel(world, self.network, LEASE_MS)
        self.settings = ReplicationSettings(heartbeat_ms=800, silence_ms_max=2_500, batch_bytes_max=64)
        self.steps = 0
        self.kill_after = 0  # after so many steps, the broker that took the last one is killed
        names = "abcde"[: shape.brokers]
        self.hosts = {name: Host(name, rate=rng.uniform(0.93, 1.07), start_ms=rng.uniform(0, 1e6)) for name in names}
        self.checker = Checker(self.etcd, {name: host.disk for name, host in self.hosts.items()}, shape)

    def stepped(self, name: str) -> None:
        """A broker has taken a step of `decide`, or one of a change of role."""
        self.steps += 1
        if self.steps == self.kill_after:
            self.world.after(0, self.kill, name)
            self.world.after(self.world.random.choice((50, 2000, 6000)), self.start, name)

    def start(self, name: str) -> None:
        host = self.hosts[name]
        if host.process is None:
            host.life += 1
            host.process = Process(self, host)
            self.world.trace(name, f"starts, life {host.life}, log {len(host.disk.log)} {host.disk.epochs}")
            host.process.begin()

    def kill(self, name: str) -> None:
        """The process ends; its machine goes on and closes its connections."""
        host = self.hosts[name]
        if host.process is not None:
            self.world.trace(name, "is killed")
            process, host.process, host.paused_until = host.process, None, 0.0
            process.die(quietly=False)

    def cut_power(self, name: str) -> None:
        host = self.hosts[name]
        self.world.trace(name, f"loses power: synced {host.disk.synced} of {len(host.disk.log)}")
        process, host.process, host.paused_until = host.process, None, 0.0
        if process is not None:
            process.die(quietly=True)
        host.disk.lose_power(self.world.random, reports_are_synced=self.shape.syncs_first)
        self.checker.check_set()

    def pause(self, name: str, duration_ms: float) -> None:
        """SIGSTOP for a while: what arrives waits."""
        self.world.trace(name, f"is stopped for {duration_ms:.0f} ms")
        self.hosts[name].paused_until = self.world.now + duration_ms

    def process(self, name: str) -> Process | None:
        return self.hosts[name].process
