"""The replica's side of a simulated broker: join, cut what differs, copy, report; and consumer offsets.

Real: check_epoch, tail_search, decide_join, ReplicaLink, OffsetTable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.world import Wire

from twinlog.replication.digests import tail_search
from twinlog.replication.errors import ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master_epoch import MasterEpochs, check_epoch
from twinlog.replication.replica.join import LogRange, Refuse, decide_join
from twinlog.replication.replica.link import ReplicaLink
from twinlog.replication.transfer import encode_pass

if TYPE_CHECKING:
    from tests.simulation.disk import Disk
    from tests.simulation.process import Process

SEGMENT_BYTES = 1 << 20
GROUP, TOPIC, QUEUE = "G", "T", 0
_RETRY_MS, _ANSWER_MS_MAX, _METADATA_MS = 300, 1_000, 1_500


@dataclass(frozen=True)
class Welcome:
    """A master's answer to a replica that introduces itself, and what its log was then."""

    pass_number: int
    epoch: int
    log: bytes


class _Epochs:
    """The epoch file, as `check_epoch` uses it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @property
    def now(self) -> MasterEpochs:
        return self._disk.epochs

    def saw(self, epoch: int) -> None:
        self._disk.epochs = self._disk.epochs.saw(epoch)


class Following:
    def __init__(self, process: Process) -> None:
        self._process = process
        self.told: tuple[str, int] | None = None
        self._link: ReplicaLink | None = None
        self._wire: Wire | None = None
        self._attempt = 0  # answers to an older one are ignored
        self._next_try_ms = 0
        self._master_end = 0  # of the log that was joined; below that, this one may lack what it had reported
        self._syncs = False
        self._metadata_ms = 0
        self._offsets_epoch = 0  # the epoch that the offsets are of

    # -- life ------------------------------------------------------------------------------------------------------

    def follow(self, member: str, epoch: int) -> None:
        self.close(quietly=False)
        self.told = (member, epoch)
        self._join()

    def stop(self) -> None:
        self.close(quietly=False)
        self.told = None

    def close(self, *, quietly: bool) -> None:
        """Leave the link, if there is one. Quietly: the master finds out by the silence."""
        self._attempt += 1
        self._next_try_ms = 0
        wire, self._wire, self._link = self._wire, None, None
        if wire is not None:
            me = self._process.name
            wire.closed.add(me)
            if not quietly and self.told is not None:
                master = self._process.group.hosts[self.told[0]]
                wire.send(me, lambda: master.process and master.process.run(master.process.leading.closed, wire))

    def tick(self, now_ms: int) -> None:
        if self.told is None:
            return
        if self._link is not None:
            if self._link.is_silent(now_ms):
                self.close(quietly=False)
            else:
                self._report()
        elif now_ms >= self._next_try_ms:
            self._join()
        if now_ms - self._metadata_ms >= _METADATA_MS:
            self._sync_offsets(now_ms)

    # -- joining ---------------------------------------------------------------------------------------------------

    def _ask(self, ask: Callable[[Process, Callable[[Any], None]], None], answer: Callable[[Any], None]) -> None:
        """A request to the master and its answer, over the network; no answer after a while, or at all."""
        process, (master, _) = self._process, self.told or ("", 0)
        host, network, me = process.group.hosts[master], process.group.network, process.name
        there = network.delay(me, master)
        if there is None:
            return

        def reply(result: Any) -> None:
            back = network.delay(master, me)
            if back is not None:
                process.later(back, answer, result)

        process.world.after(there, lambda: host.process and host.process.run(ask, host.process, reply))

    def _join(self) -> None:
        process, disk = self._process, self._process.disk
        now_ms = process.clock_ms()
        self._attempt += 1
        self._next_try_ms = now_ms + _ANSWER_MS_MAX
        attempt, log_end, seen = self._attempt, len(disk.log), disk.epochs.seen
        header = HelloHeader(
            cluster_name="C",
            broker_name="B",
            broker_id=1 + ord(process.name),
            instance=process.name,
            log_start=0,
            log_end=log_end,
            segment_bytes=SEGMENT_BYTES,
            master_epoch=seen,
        )
        self._ask(lambda master, reply: master.leading.hello(header, reply), lambda it: self._welcome(attempt, it))

    def _welcome(self, attempt: int, welcome: Welcome) -> None:
        process, disk = self._process, self._process.disk
        if attempt != self._attempt or self.told is None:
            return
        if process.mutant != "ignore a higher epoch":
            try:
                check_epoch(self.told[0], welcome.epoch, _Epochs(disk))
            except ReplicationError:
                return
        if welcome.epoch != self.told[1] and process.mutant != "ignore a higher epoch":
            return
        ours, theirs = LogRange(0, len(disk.log)), LogRange(0, len(welcome.log))
        differs_at = self._first_difference(welcome.log)
        plan = decide_join(ours, theirs, segment_bytes=SEGMENT_BYTES, differs_at=differs_at)
        self._master_end = theirs.end
        if isinstance(plan, Refuse):
            at = min(theirs.end, differs_at if differs_at is not None else theirs.end)
            if process.mutant == "keep the tail on rejoin":
                at = theirs.end
            leader = process.keys.leader if process.keys is not None else None
            if leader is None or (leader.member, leader.epoch) != self.told:
                return  # only a master that holds the leader key is worth losing a tail for
            disk.cut_intent = at
            self._attempt += 1
            process.later(process.world.random.uniform(0, 20), self._cut, self._attempt, at, welcome)
        else:
            self._connect(welcome)

    def _cut(self, attempt: int, at: int, welcome: Welcome) -> None:
        process = self._process
        process.world.trace(process.name, f"cuts its log at {at} of {len(process.disk.log)}")
        process.disk.cut(at)
        process.disk.cut_intent = None
        if attempt == self._attempt:
            self._connect(welcome)

    def _first_difference(self, theirs: bytes) -> int | None:
        ours = self._process.disk.log
        search = tail_search(0, min(len(ours), len(theirs)))
        try:
            wanted = next(search)
            while True:
                wanted = search.send(ours[wanted.begin : wanted.end] == theirs[wanted.begin : wanted.end])
        except StopIteration as found:
            at = found.value
        return None if at is None else at - at % 8

    def _connect(self, welcome: Welcome) -> None:
        process, master = self._process, (self.told or ("", 0))[0]
        disk, host = process.disk, process.group.hosts[master]
        wire = self._wire = Wire(process.world, process.group.network, (process.name, master))
        self._link = ReplicaLink(process.group.settings, len(disk.log), process.clock_ms())
        if process.group.shape.syncs_first and process.mutant != "skip an fsync":
            disk.sync()
        first = encode_pass(welcome.pass_number) + (self._link.appended(len(disk.log), process.clock_ms()) or b"")
        wire.send(
            process.name,
            lambda: host.process and host.process.run(host.process.leading.accept, wire, process.name, first),
        )
        self._check_whole()

    # -- copying ---------------------------------------------------------------------------------------------------

    def receive(self, wire: Wire, data: bytes) -> None:
        """Bytes of the master."""
        process, disk = self._process, self._process.disk
        if wire is not self._wire or self._link is None:
            return
        try:
            for append in self._link.receive(memoryview(data), process.clock_ms()):
                if append.physical_offset != len(disk.log):
                    raise ReplicationError("not where the log ends")
                disk.log += append.data
        except ReplicationError as error:
            process.world.trace(process.name, f"leaves the link: {error}")
            self.close(quietly=False)
            return
        self._check_whole()
        if not process.group.shape.syncs_first or process.mutant == "skip an fsync":
            self._report()
        elif not self._syncs:
            self._syncs = True
            process.later(process.world.random.uniform(0.2, 15), self._synced, len(disk.log))

    def closed(self, wire: Wire) -> None:
        """The master has closed the link."""
        if wire is self._wire:
            self.close(quietly=True)
            self._next_try_ms = self._process.clock_ms() + _RETRY_MS

    def _synced(self, end: int) -> None:
        disk = self._process.disk
        self._syncs = False
        disk.synced = max(disk.synced, min(end, len(disk.log)))
        self._report()

    def _report(self) -> None:
        process, disk = self._process, self._process.disk
        if self._link is None or self._wire is None or self.told is None:
            return
        is_synced = process.group.shape.syncs_first and process.mutant != "skip an fsync"
        end = disk.synced if is_synced else len(disk.log)
        report = self._link.appended(end, process.clock_ms())
        wire, host = self._wire, process.group.hosts[self.told[0]]
        if report is not None:
            wire.send(
                process.name,
                lambda: host.process and host.process.run(host.process.leading.reported, wire, report),
            )

    def _check_whole(self) -> None:
        if not self._process.disk.is_whole and len(self._process.disk.log) >= self._master_end:
            self._process.disk.now_whole()

    # -- consumer offsets ------------------------------------------------------------------------------------------

    def offset(self) -> int:
        return self._process.offsets.get(GROUP, TOPIC, QUEUE) or 0

    def consume(self, steps: int, epoch: int) -> None:
        """A consumer commits here."""
        self._process.offsets.commit(GROUP, TOPIC, QUEUE, self.offset() + steps, self._process.clock_ms())
        self._offsets_epoch = max(epoch, self._offsets_epoch)

    def _sync_offsets(self, now_ms: int) -> None:
        self._metadata_ms = now_ms
        ahead, told = self._process.offsets.ahead(), self.told

        def answered(result: tuple[int, str, dict[str, dict[int, int]]]) -> None:
            epoch, life, rows = result
            if told != self.told or now_ms != self._metadata_ms or epoch < self._process.disk.epochs.seen:
                return
            before = self.offset()
            self._process.offsets.adopt(rows, None, master_epoch=life)
            if self.offset() < before and self._offsets_epoch == epoch:
                self._process.group.checker.offset_went_back(self._process.name, before, self.offset())
            self._offsets_epoch = epoch

        self._ask(lambda master, reply: master.leading.offsets_asked(ahead, reply), answered)
