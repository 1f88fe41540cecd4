"""The values that travel between the driver and the tasks of a tick: work to do, and reports of what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.sync.replicas.replica_state import JournalEntry, RangeDigest
from twinlog.spark.jobs.sync.sync_plan import BrokerTarget, Keep
from twinlog.wire.bodies import DataVersion


@dataclass(frozen=True, slots=True)
class Drained:
    """The last journal entry and the last range of a replica that are in the history tables."""

    entries: int = 0
    ranges: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TickWork:
    """The work of all tasks of one tick."""

    to: str
    cluster: ClusterOptions = field(repr=False)
    groups: Sequence[Sequence[BrokerTarget]]
    drained: Mapping[tuple[str, str], Drained] = field(default_factory=dict)  # by broker and replica
    tick_ms: int = 8_000  # for copying
    range_bytes_max: int = 256 * 1024 * 1024
    lock_wait_s: float = 0.0
    modes: Modes = PRIVATE
    keep: Keep | None = None  # how much of a replica's log; None: all
    ha_secret: str | None = field(default=None, repr=False)

    def drained_of(self, broker: str, replica: str) -> Drained:
        return self.drained.get((broker, replica), Drained())


class BrokerReport(msgspec.Struct):
    """The result of one broker in one tick; `entries` and `ranges` are those that are not in the tables yet."""

    broker: str
    address: str = ""
    replica: str = ""
    begin: int = 0
    start: int = 0  # of the replica's log
    end: int = 0
    master_end: int = 0
    changes: int = 0
    entries: list[JournalEntry] = []
    ranges: list[RangeDigest] = []
    versions: dict[str, DataVersion] = {}
    dropped: int = 0  # bytes of old segments that were deleted
    error: str = ""
    seconds: float = 0.0

    @property
    def lag(self) -> int:
        return max(0, self.master_end - self.end)
