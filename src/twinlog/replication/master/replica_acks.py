"""Which replicas hold which bytes, and therefore up to where a SYNC master may acknowledge sends.

A Twinlog replica has an identity and counts once however often it connects. A Java replica has none: each of its
connections counts as one replica, but not more of them than the name server has replicas without an identity
registered for this broker. Observers are listed and never count.

A replica is late when a send timed out while it waited for this replica: it may be connected and silent. What it
reported before still counts, but it is not in sync, so that new sends do not wait for it one after the other. It is
in sync again with the first report of something new. A send is never acknowledged as replicated without a report
that covers it.

A replica is behind when it has not once caught up for a given time, although it may acknowledge something now and then,
and although no send waits for it. It is not in sync until it has caught up.
"""

from dataclasses import dataclass

_PAUSE_MS = 2_000  # between two ticks: this process was held up


@dataclass(slots=True)
class LinkAck:
    """What one connection's replica has acknowledged."""

    peer: str
    identity: str | None = None  # None: a Java replica
    observer: bool = False
    acked: int = 0
    usable: bool = False  # it has reported, and the bytes it needs are here
    late: bool = False  # a send timed out waiting for it, and it has acknowledged nothing new since
    behind: bool = False  # it has not caught up for too long
    caught_up_ms: int | None = None  # when it last held all of the log; None before the first tick
    marked: tuple[int, int] = (0, 0)  # an end of the log that it has to reach, and when that was the end

    def report(self, acked: int, *, usable: bool) -> None:
        """Note what the connection's replica holds now."""
        if acked > self.acked:
            self.late = False
        self.acked, self.usable = acked, usable

    def catch_up(self, log_end: int, now_ms: int) -> bool:
        """Whether it has reached the mark, which then moves to `log_end`."""
        if self.acked < self.marked[0]:
            return False
        self.caught_up_ms, self.marked = self.marked[1], (log_end, now_ms)
        return True


class ReplicaAcks:
    """Invariant: nothing counts beyond what a replica reported on a connection that is open now."""

    def __init__(self) -> None:
        self._rows: dict[int, LinkAck] = {}
        self._ticked_ms: int | None = None
        self.registered_replicas: int | None = None  # from the name server; None while it is unknown

    def join(self, link: int, row: LinkAck) -> None:
        self._rows[link] = row

    def leave(self, link: int) -> None:
        self._rows.pop(link, None)

    def rows(self) -> list[LinkAck]:
        return list(self._rows.values())

    def missed(self, end: int) -> list[LinkAck]:
        """Mark the replicas that are late because a send waited too long for `end`; returns those."""
        late = [row for row in self._rows.values() if row.usable and not row.late and row.acked < end]
        for row in late:
            row.late = True
        return late

    def tick(self, log_end: int, now_ms: int, ms_max: int) -> list[LinkAck]:
        """Note who has caught up; returns those that are behind from now on, or are so no more.

        Call it about twice a second. A pause between two calls does not count: reports may wait to be read.
        """
        pause_ms = now_ms - (self._ticked_ms if self._ticked_ms is not None else now_ms)
        self._ticked_ms, changed = now_ms, list[LinkAck]()
        for row in self._rows.values():
            if row.caught_up_ms is None:
                row.caught_up_ms, row.marked = now_ms, (log_end, now_ms)
            elif pause_ms > _PAUSE_MS:
                row.caught_up_ms += pause_ms
            was_behind = row.behind
            if row.catch_up(log_end, now_ms):
                row.behind = False
            elif now_ms - row.caught_up_ms > ms_max:
                row.behind = True
            if row.behind != was_behind and row.usable and not row.observer:
                changed.append(row)
        return changed

    def acks(self) -> list[int]:
        """The acknowledged ends that count, one per replica, highest first."""
        return self._counted(late_too=True)

    def ends(self) -> dict[str, int]:
        """What each identified replica has reported on its newest connection, late or not.

        An older one may be open still: a replica that was restarted may lack what it reported there.
        """
        ends: dict[str, int] = {}
        for row in self._rows.values():
            if row.identity is not None and not row.observer:
                ends.pop(row.identity, None)
                if row.usable:
                    ends[row.identity] = row.acked
        return ends

    def of_replica(self, identity: str) -> list[int]:
        """What this Twinlog replica has acknowledged; empty while it has no usable connection."""
        ends = [
            row.acked for row in self._rows.values() if row.identity == identity and row.usable and not row.observer
        ]
        return [max(ends)] if ends else []

    def _counted(self, *, late_too: bool) -> list[int]:
        known: dict[str, int] = {}
        unknown: list[int] = []
        for row in self._rows.values():
            if row.observer or not row.usable or ((row.late or row.behind) and not late_too):
                continue
            if row.identity is None:
                unknown.append(row.acked)
            else:
                known[row.identity] = max(known.get(row.identity, 0), row.acked)
        unknown.sort(reverse=True)
        if self.registered_replicas is not None:
            unknown = unknown[: max(0, self.registered_replicas - len(known))]
        return sorted([*known.values(), *unknown], reverse=True)

    def safe_end(self, replicas: int, log_end: int) -> int:
        """The end of what at least `replicas` replicas hold; all of the log when none is needed."""
        if replicas <= 0:
            return log_end
        acks = self.acks()
        return min(acks[replicas - 1], log_end) if len(acks) >= replicas else 0

    def in_sync(self, log_end: int, gap_bytes_max: int) -> int:
        """How many replicas are neither late nor behind, and fewer than `gap_bytes_max` bytes behind `log_end`."""
        return sum(0 <= log_end - acked < gap_bytes_max for acked in self._counted(late_too=False))


def replicas_needed(role: str, in_sync_replicas: int | None) -> int:
    """How many replicas must hold a message before a SYNC master acknowledges it.

    `inSyncReplicas` counts the master itself. Java's default of 1 therefore waits for no replica; here a
    SYNC_MASTER without that setting waits for one.
    """
    if role != "SYNC_MASTER":
        return 0
    return 1 if in_sync_replicas is None else max(0, in_sync_replicas - 1)
