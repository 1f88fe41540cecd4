"""The master's side of a simulated broker: sends, links of replicas, acknowledgements.

Real: MasterLink, ReplicaAcks, Passes, MasterGuard, the in-sync rule, Behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import record
from tests.simulation.following import SEGMENT_BYTES, Welcome
from tests.simulation.mutants import counted_twice
from tests.simulation.world import Wire

from twinlog.failover.behind import Behind
from twinlog.failover.in_sync import InSyncState, Replica, acknowledged_end
from twinlog.failover.records import Keys
from twinlog.failover.view import Role, View
from twinlog.replication.errors import ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master.guard import MasterGuard
from twinlog.replication.master.link import LinkState, LogBounds, MasterLink
from twinlog.replication.master.passes import Passes, PassHolder
from twinlog.replication.master.replica_acks import LinkAck, ReplicaAcks

if TYPE_CHECKING:
    from tests.simulation.process import Process

_SEND_MS_MAX = 2_500


@dataclass
class _Served:
    """One replica's connection."""

    number: int
    name: str
    wire: Wire
    link: MasterLink
    row: LinkAck
    holder: PassHolder | None = None


class Leading:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._links: dict[int, _Served] = {}
        self._pending: deque[tuple[int, int]] = deque()  # (end of the record, when its send gives up)
        self._syncs = False
        self._accepts = False
        self._behind = Behind(0)
        self._links_made = 0
        self.acks = ReplicaAcks()
        self.passes = Passes()
        self.guard = MasterGuard(process.clock_ms)
        self.in_sync = InSyncState()
        self.acknowledged = 0
        self.refused_ms: int | None = None

    # -- role ------------------------------------------------------------------------------------------------------

    def begin(self, view: View) -> None:
        """This broker is master from now on."""
        keys = view.keys
        assert keys is not None and keys.in_sync is not None
        self.in_sync = InSyncState(frozenset(keys.in_sync.members), keys.in_sync_changed)
        if self._process.mutant == "forget the set at promotion":
            self.in_sync = InSyncState(frozenset({self._process.name}), keys.in_sync_changed)
        self.acknowledged = len(self._process.disk.log)
        self.refused_ms = None
        self._behind = Behind(self._process.clock_ms())
        self._pending.clear()
        self._accepts = True
        self.guard.confirm()

    def refuse(self) -> None:
        """Accept and acknowledge nothing from now on."""
        self._accepts = False
        self.refused_ms = None

    def settle(self) -> None:
        self._pending.clear()

    def confirm(self) -> None:
        """The lease was renewed."""
        self.guard.confirm()

    @property
    def may_acknowledge(self) -> bool:
        if self._process.mutant == "acknowledge after a pause":
            return self._accepts
        return self._accepts and self.guard.is_valid and self._process.clock_ms() <= self._process.lease_until_ms

    def tick(self, now_ms: int) -> None:
        self.guard.tick()
        for served in list(self._links.values()):
            if served.link.is_silent(now_ms):
                self._close(served, quietly=False)
            else:
                self._pump(served)
        while self._pending and self._pending[0][1] <= now_ms:
            self._pending.popleft()

    # -- sends -----------------------------------------------------------------------------------------------------

    def send(self, number: int) -> None:
        """A producer's message arrives."""
        process = self._process
        if process.role is not Role.MASTER or not self.may_acknowledge or self.refused_ms is not None:
            return
        process.disk.log += record(process.disk.epochs.own, number)
        self._pending.append((len(process.disk.log), process.clock_ms() + _SEND_MS_MAX))
        if not self._syncs:
            self._syncs = True
            process.later(process.world.random.uniform(0.2, 15), self._synced, len(process.disk.log))
        for served in list(self._links.values()):
            self._pump(served)
        self._acknowledge()

    def _synced(self, end: int) -> None:
        disk = self._process.disk
        self._syncs = False
        disk.synced = max(disk.synced, min(end, len(disk.log)))
        if disk.synced < len(disk.log):
            self._syncs = True
            self._process.later(self._process.world.random.uniform(0.2, 15), self._synced, len(disk.log))
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Answer the sends that every member of the set has."""
        process, disk = self._process, self._process.disk
        if not self._pending or not self.may_acknowledge:
            return
        replicas = {name: Replica(acked, True) for name, acked in self.acks.ends().items()}
        end = acknowledged_end(self.in_sync, process.name, replicas, len(disk.log), process.group.rules.in_sync)
        if process.mutant == "count an ack twice":
            end = counted_twice(self.acks, self.in_sync, len(disk.log), process.group.rules.in_sync)
        if process.group.shape.syncs_first:
            end = min(end, disk.synced)
        while self._pending and self._pending[0][0] <= end:
            self.acknowledged = max(self.acknowledged, self._pending[0][0])
            sent, _ = self._pending.popleft()
            process.group.checker.acknowledged(process.name, disk.epochs.own, sent, process.world.now)

    # -- the in-sync set -------------------------------------------------------------------------------------------

    def replicas(self, now_ms: int) -> dict[str, Replica]:
        others = self.in_sync.awaited - {self._process.name}
        return self._behind.update(others, self.acks.ends(), len(self._process.disk.log), now_ms)

    def write_begins(self, members: frozenset[str]) -> None:
        self.in_sync = self.in_sync.writing(members)
        if self._process.mutant == "shrink before writing":
            self.in_sync = InSyncState(members, self.in_sync.changed)
            self._acknowledge()

    def write_ended(self, members: frozenset[str], result: tuple[bool, int] | None) -> None:
        if result is not None and result[0]:
            self.in_sync = self.in_sync.written(members, result[1])
            self._acknowledge()
        elif result is None and self._process.mutant == "forget an unknown outcome":
            self.in_sync = InSyncState(self.in_sync.members, self.in_sync.changed)

    def set_was_read(self, keys: Keys) -> None:
        if self._process.role is Role.MASTER and keys.in_sync is not None:
            self.in_sync = self.in_sync.read(keys.in_sync.members, keys.in_sync_changed)

    # -- replicas --------------------------------------------------------------------------------------------------

    def hello(self, header: HelloHeader, reply: Callable[[Any], None]) -> None:
        process = self._process
        if process.role is not Role.MASTER:
            return
        if (header.master_epoch or 0) > process.disk.epochs.own and process.mutant != "ignore a higher epoch":
            process.disk.epochs = process.disk.epochs.saw(header.master_epoch or 0)
            process.step()
            return
        number = self.passes.issue(header, "B", "C", process.clock_ms())
        reply(Welcome(number, process.disk.epochs.own, bytes(process.disk.log)))

    def accept(self, wire: Wire, name: str, data: bytes) -> None:
        process = self._process
        if process.role is not Role.MASTER:
            wire.closed.add(process.name)
            self._say_closed(wire, name)
            return
        self._links_made += 1
        number = self._links_made
        link = MasterLink(process.group.settings, process.clock_ms())
        served = self._links[number] = _Served(number, name, wire, link, LinkAck(name))
        self.acks.join(number, served.row)
        self._take(served, data)

    def reported(self, wire: Wire, data: bytes) -> None:
        served = next((one for one in self._links.values() if one.wire is wire), None)
        if served is not None:
            self._take(served, data)

    def closed(self, wire: Wire) -> None:
        for served in [one for one in self._links.values() if one.wire is wire]:
            self._close(served, quietly=True)

    def close_links(self, *, quietly: bool) -> None:
        for served in list(self._links.values()):
            self._close(served, quietly=quietly)
        self.passes.forget_all()

    def offsets_asked(self, ahead: dict[str, dict[int, int]], reply: Callable[[Any], None]) -> None:
        process = self._process
        if process.role is Role.MASTER:
            process.offsets.raise_to(ahead, process.clock_ms())
            rows = {key: dict(row) for key, row in process.offsets.rows.items()}
            reply((process.disk.epochs.own, f"{process.name}{process.host.life}", rows))

    def _bounds(self) -> LogBounds:
        return LogBounds(0, len(self._process.disk.log), SEGMENT_BYTES)

    def _take(self, served: _Served, data: bytes) -> None:
        process, link = self._process, served.link
        try:
            link.receive(data, self._bounds(), process.clock_ms())
            if served.holder is None and link.pass_number is not None:
                served.holder = self.passes.redeem(link.pass_number, process.clock_ms())
                served.row.identity = served.holder.identity
                link.receive(b"", self._bounds(), process.clock_ms())
        except ReplicationError as error:
            process.world.trace(process.name, f"refuses {served.name}: {error}")
            self._close(served, quietly=False)
            return
        served.row.report(link.acked, usable=link.state is LinkState.SENDING)
        self._acknowledge()
        self._pump(served)

    def _pump(self, served: _Served) -> None:
        process = self._process
        replica = process.group.hosts[served.name]
        while (transfer := served.link.next_transfer(self._bounds(), process.clock_ms())) is not None:
            at = transfer.physical_offset
            data, wire = transfer.head + bytes(process.disk.log[at : at + transfer.size]), served.wire
            wire.send(
                process.name,
                lambda wire=wire, data=data: (
                    replica.process and replica.process.run(replica.process.following.receive, wire, data)
                ),
            )

    def _close(self, served: _Served, *, quietly: bool) -> None:
        if self._links.pop(served.number, None) is None:
            return
        self.acks.leave(served.number)
        if served.holder is not None:
            self.passes.release(served.holder)
        served.wire.closed.add(self._process.name)
        if not quietly:
            self._say_closed(served.wire, served.name)

    def _say_closed(self, wire: Wire, name: str) -> None:
        host = self._process.group.hosts[name]
        wire.send(self._process.name, lambda: host.process and host.process.run(host.process.following.closed, wire))
