"""Whether and where a replica may join its master: a decision on numbers, before any byte moves."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRange:
    """The bytes a log holds: from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.end == self.start


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue where the replica ends."""

    at: int


@dataclass(frozen=True, slots=True)
class Begin:
    """An empty replica begins at this segment boundary."""

    at: int


@dataclass(frozen=True, slots=True)
class Reseed:
    """Set the replica's log aside, since the master no longer has what follows it, and begin at `at`."""

    at: int
    missing: LogRange


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not join; `reason` names the offsets and the next step."""

    reason: str
    cut_at: int | None = None  # the replica could join if its log ended here


JoinPlan = Resume | Begin | Reseed | Refuse


def decide_join(
    replica: LogRange,
    master: LogRange,
    *,
    segment_bytes: int,
    master_segment_bytes: int | None = None,
    differs_at: int | None = None,
    whole_history: bool = False,
    reseed_allowed: bool = False,
    store: str = "DIR",
) -> JoinPlan:
    """What a replica does before it asks its master for bytes.

    `differs_at` is the first offset at which both logs are known to differ, from comparing checksums. `store` is the
    replica's directory, for the commands that operators are shown.
    """
    if master_segment_bytes is not None and master_segment_bytes != segment_bytes:
        return Refuse(
            f"the master's segments have {master_segment_bytes} bytes, this replica's {segment_bytes}: set "
            f"mappedFileSizeCommitLog={master_segment_bytes} here and start with an empty store"
        )
    if replica.is_empty:
        newest = master.end - master.end % segment_bytes
        return Begin(master.start if whole_history else max(newest, master.start))
    if differs_at is not None:
        return Refuse(
            f"the logs differ from offset {differs_at} on (replica ends at {replica.end}, master at {master.end}); "
            f"stop this replica and run `twinlog replication rejoin --store {store} --cut {differs_at}`: it sets "
            "the tail aside and cuts it there",
            differs_at,
        )
    if replica.end > master.end:
        return Refuse(
            f"the replica ends at {replica.end}, {replica.end - master.end} bytes beyond the master's {master.end}; "
            "its tail may be the only copy of acknowledged messages; stop this replica and run `twinlog replication "
            f"rejoin --store {store} --cut {master.end}`: it sets the tail aside and cuts it",
            master.end,
        )
    if replica.end < master.start:
        missing = LogRange(replica.end, master.start)
        if reseed_allowed:
            return Reseed(master.start if whole_history else master.end - master.end % segment_bytes, missing)
        return Refuse(
            f"the master has deleted the bytes {missing.start} to {missing.end} that this replica needs next; set "
            "haReseedAllowed=true to let it set its log aside and start again"
        )
    return Resume(replica.end)
