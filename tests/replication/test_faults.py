"""A master, its replica and a hostile world: kills, power cuts, cut connections, late and partial bytes.

The protocol halves, the join decision and the acknowledgement table are the real ones; logs, sockets and
disks are models that break at any point. Whatever happens, in whatever order:
- a message acknowledged in SYNC is in the log of at least one of the two brokers, and in the replica's
  whenever the master died;
- while the two are joined, their logs do not differ.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from twinlog.replication.digests import ByteRange, tail_search
from twinlog.replication.errors import ReplicationError
from twinlog.replication.master.link import LinkState, LogBounds, MasterLink
from twinlog.replication.master.replica_acks import LinkAck, ReplicaAcks, replicas_needed
from twinlog.replication.replica.join import Begin, LogRange, Refuse, Resume, decide_join
from twinlog.replication.replica.link import ReplicaLink
from twinlog.settings.replication import ReplicationSettings

SEGMENT = 256
RECORD = 16  # a record is 16 bytes: its number, and a filler that differs after each restart
SETTINGS = ReplicationSettings(batch_bytes_max=40, copy_whole_history=True)
NEEDED = replicas_needed("SYNC_MASTER", None)


class Wire:
    """What is on its way between the two; a cut loses it."""

    def __init__(self, log_end: int, log: LogBounds) -> None:
        self.master = MasterLink(SETTINGS, 0, whole_history=True)
        self.replica = ReplicaLink(SETTINGS, log_end, 0)
        self.to_master = bytearray(self.replica.appended(log_end, 0) or b"")
        self.to_replica = bytearray()


class TwinLogs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.master = bytearray()
        self.replica = bytearray()
        self.flushed = 0
        self.restarts = 0
        self.number = 0
        self.waiting: list[tuple[int, bytes]] = []  # (end, record) of sends without an answer
        self.acknowledged: list[bytes] = []
        self.acks = ReplicaAcks()
        self.wire: Wire | None = None
        self.refused = ""

    # -- a master that works -----------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.connect()

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            record = self.number.to_bytes(8, "big") + self.restarts.to_bytes(8, "big")
            self.master += record
            self.waiting.append((len(self.master), record))

    @rule()
    def flush(self) -> None:
        self.flushed = len(self.master)

    @precondition(lambda self: self.wire is not None)
    @rule()
    def master_writes(self) -> None:
        assert self.wire is not None
        while transfer := self.wire.master.next_transfer(self._view(), 0):
            data = self.master[transfer.physical_offset : transfer.physical_offset + transfer.size]
            self.wire.to_replica += transfer.head + data

    @precondition(lambda self: self.wire is not None)
    @rule(count=st.integers(1, 200))
    def replica_reads(self, count: int) -> None:
        assert self.wire is not None
        data = bytes(self.wire.to_replica[:count])
        del self.wire.to_replica[:count]
        for append in self.wire.replica.receive(memoryview(data), 0):
            assert append.physical_offset == len(self.replica)
            self.replica += append.data
        whole = len(self.replica) - len(self.replica) % RECORD
        self.wire.to_master += self.wire.replica.appended(whole, 0) or b""

    @precondition(lambda self: self.wire is not None)
    @rule(count=st.integers(1, 40))
    def master_reads(self, count: int) -> None:
        assert self.wire is not None
        data = bytes(self.wire.to_master[:count])
        del self.wire.to_master[:count]
        try:
            self.wire.master.receive(data, self._view(), 0)
        except ReplicationError:
            self.cut()
            return
        link = self.wire.master
        self.acks.join(1, LinkAck("replica", "id", acked=link.acked, usable=link.state is LinkState.SENDING))
        safe = self.acks.safe_end(NEEDED, len(self.master))
        self.acknowledged += [record for end, record in self.waiting if end <= safe]
        self.waiting = [(end, record) for end, record in self.waiting if end > safe]

    @precondition(lambda self: self.wire is not None)
    @rule()
    def catch_up(self) -> None:
        """Everything that is on its way arrives, on both sides."""
        self.master_writes()
        self.replica_reads(1 << 20)
        self.master_reads(1 << 20)

    # -- a world that breaks -----------------------------------------------------------------------

    @rule()
    def cut(self) -> None:
        self.wire = None
        self.acks.leave(1)

    @precondition(lambda self: self.wire is None)
    @rule()
    def connect(self) -> None:
        del self.replica[len(self.replica) - len(self.replica) % RECORD :]  # a partly received record is dropped
        plan = decide_join(
            LogRange(0, len(self.replica)),
            LogRange(0, len(self.master)),
            segment_bytes=SEGMENT,
            differs_at=self._difference(),
            whole_history=True,
        )
        self.refused = plan.reason if isinstance(plan, Refuse) else ""
        if isinstance(plan, Resume | Begin):
            self.wire = Wire(len(self.replica), self._view())

    @rule()
    def kill_master(self) -> None:
        """kill -9: what was appended is in the page cache and survives; nobody gets an answer any more."""
        self.cut()
        self.waiting.clear()
        self.restarts += 1

    @rule(keep=st.integers(0, 64))
    def master_loses_power(self, keep: int) -> None:
        """Anything behind the last flush may be gone, cut at any byte; recovery keeps whole records."""
        self.kill_master()
        end = min(len(self.master), self.flushed + keep)
        del self.master[end - end % RECORD :]
        self.flushed = len(self.master)

    @rule()
    def kill_replica(self) -> None:
        self.cut()
        del self.replica[len(self.replica) - len(self.replica) % RECORD :]

    @precondition(lambda self: self.refused)
    @rule()
    def operator_fails_over(self) -> None:
        """The replica is ahead or differs: it becomes the master; the old one's tail is set aside and cut."""
        self.kill_master()
        old, self.master = self.master, bytearray(self.replica)
        self.flushed = len(self.master)
        common = next((n for n, (a, b) in enumerate(zip(old, self.master, strict=False)) if a != b), len(old))
        common = min(common, len(self.master))
        self.replica = old[: common - common % RECORD]
        self.refused = ""

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        there = {bytes(self.replica[at : at + RECORD]) for at in range(0, len(self.replica), RECORD)}
        there |= {bytes(self.master[at : at + RECORD]) for at in range(0, len(self.master), RECORD)}
        assert there.issuperset(self.acknowledged)

    @invariant()
    def joined_logs_do_not_differ(self) -> None:
        if self.wire is not None:
            common = min(len(self.master), len(self.replica))
            assert self.master[:common] == self.replica[:common]

    def _view(self) -> LogBounds:
        return LogBounds(0, len(self.master), SEGMENT)

    def _difference(self) -> int | None:
        """The search that peers do with checksums, here on the bytes themselves."""
        search = tail_search(0, min(len(self.master), len(self.replica)))
        try:
            wanted: ByteRange = next(search)
            while True:
                ours, theirs = (log[wanted.begin : wanted.end] for log in (self.master, self.replica))
                wanted = search.send(ours == theirs)
        except StopIteration as found:
            return found.value


TwinLogs.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
test_no_history_of_faults_loses_an_acknowledged_message = TwinLogs.TestCase
