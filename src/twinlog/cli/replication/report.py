"""The state of replication as tables and as progress. No I/O: computed from the answers of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinlog.cli.shared.report import Report, Table, plain, when
from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member

MIB = 1024 * 1024
_BEHIND_BYTES_MIN = MIB  # below this a replica keeps up, and a progress bar would only flicker
_COUNTED_OUT = "does not keep up: its master does not wait for it"
_COLUMNS = "BID,Addr,State,InSync,Lag(bytes),Messages,Seconds,MB/s,LogEnd,Kind".split(",")
_SPARE = "Kind,LogEnd,MB/s,Messages,Seconds".split(",")
_TASK_COLUMNS = "Task,State,Failures,Last".split(",")
_METADATA_COLUMNS = "Kind,LastSync,Age(s),Version,Changes,Failures,Bytes".split(",")
_METADATA_SPARE = "LastSync,Bytes,Version".split(",")


def report_of(groups: Sequence[Group], *, with_metadata: bool = False) -> Report:
    """A table for each master with its replicas, reasons below it; `with_metadata`: one for each replica's metadata."""
    tables = list[Table]()
    for group in groups:
        rows = [_row(replica, group.lags.get(replica.broker_id)) for replica in group.replicas]
        tables.append(Table(_COLUMNS, rows, _title(group), _notes(group, with_metadata), _SPARE))
        for member in group.members:
            if failed := member.document.get("failedTasks"):
                tables.append(_task_table(group, member, failed))
        for replica in group.replicas if with_metadata else ():
            if replica.document.get("metadata"):
                tables.append(_metadata_table(group, replica))
    lines = [] if groups else ["no brokers are registered"]
    return Report(tables, lines, [_data(group) for group in groups])


def _title(group: Group) -> str:
    name, master = f"{group.cluster}/{group.name}", group.master
    if master is None:
        return f"{name}: no master"
    if master.kind == "silent":
        return f"{name}: master {master.address} does not answer: {master.error}"
    refused = master.document.get("refusedConnections")
    flushed = master.document.get("flushedEnd")
    epoch = master.document.get("epoch")
    return (
        f"{name}: master {master.address} ({master.kind}, {master.role})\n"
        f"log {master.log_start} to {master.log_end}"
        + (f", durable to {flushed}" if flushed is not None else "")
        + (f", epoch {epoch}" if epoch else "")
        + (f", {refused} connections refused" if refused else "")
    )


def _notes(group: Group, with_metadata: bool) -> list[str]:
    """Why replicas do not follow, and how old their metadata is, unless it has a table of its own."""
    notes = [] if group.replicas else ["no replica is registered"]
    for replica in group.replicas:
        who = f"replica {replica.broker_id}"
        if why := _reason(replica, group.lags.get(replica.broker_id)):
            notes.append(f"{who}: {why}")
        if replica.document.get("metadata") and not with_metadata:
            notes += [f"{who}: {note}" for note in _metadata_notes(replica.document)]
    return notes


def _reason(replica: Member, lag: LagFacts | None) -> str:
    counted_out = _COUNTED_OUT if lag is not None and lag.counted_out else ""
    following = replica.document.get("following", {})
    return following.get("reason") or "; ".join(filter(None, [counted_out, replica.error]))


def _metadata_notes(document: dict[str, Any]) -> list[str]:
    """One line on all kinds, and one for each kind whose last synchronisation failed."""
    rows = document["metadata"]
    failed = [f"metadata: {kind}: {status['error']}" for kind, status in rows.items() if status["error"]]
    if never := [kind for kind, status in rows.items() if not status["syncedMs"]]:
        return [f"metadata: no {', '.join(never)} so far; --metadata shows more", *failed]
    ages = [(document["nowMs"] - status["syncedMs"]) / 1000 for status in rows.values()]
    return [f"metadata: {len(ages)} kinds, synchronised {max(ages):.1f} s ago; --metadata shows them", *failed]


def _row(replica: Member, lag: LagFacts | None) -> Sequence[Any]:
    lag = lag or LagFacts()
    following = replica.document.get("following", {})
    state = following.get("state") or ("no answer" if replica.kind == "silent" else "")
    messages = None if lag.messages is None else f"{'' if lag.messages_exact else '~'}{lag.messages}"
    rate = following.get("bytesPerSecond", lag.bytes_per_second)
    return (
        replica.broker_id,
        replica.address,
        state,
        lag.in_sync,
        "unknown" if state == "refused" else lag.bytes,
        messages,
        None if lag.ms is None else lag.ms / 1000,
        None if rate is None else rate / MIB,
        replica.log_end,
        replica.kind,
    )


def _metadata_table(group: Group, replica: Member) -> Table:
    now_ms, rows, notes = replica.document["nowMs"], list[Sequence[Any]](), list[str]()
    for kind, status in replica.document["metadata"].items():
        version = status.get("version") or {}
        rows.append(
            (
                kind,
                when(status["syncedMs"]),
                (now_ms - status["syncedMs"]) / 1000 if status["syncedMs"] else None,
                f"{version['counter']} of {when(version['timestamp'])}" if version else "",
                status["changes"],
                status["failures"],
                status["bytesReceived"],
            )
        )
        notes += [f"{kind}: {status['error']}"] if status["error"] else []
    return Table(
        _METADATA_COLUMNS, rows, f"{group.name}: metadata of replica {replica.broker_id}", notes, _METADATA_SPARE
    )


def _task_table(group: Group, member: Member, failed: dict[str, Any]) -> Table:
    title = f"{group.name}: tasks of broker {member.broker_id} that failed unexpectedly; see its log"
    rows: list[Sequence[Any]] = [
        (name, "paused" if one["paused"] else "running again", one["failures"], when(one["failedMs"]))
        for name, one in sorted(failed.items())
    ]
    return Table(_TASK_COLUMNS, rows, title, [f"{name}: {one['error']}" for name, one in sorted(failed.items())])


def _data(group: Group) -> dict[str, Any]:
    def of(member: Member) -> dict[str, Any]:
        lag = group.lags.get(member.broker_id)
        return {
            "brokerId": member.broker_id,
            "address": member.address,
            "kind": member.kind,
            "logStart": member.log_start,
            "logEnd": member.log_end,
            "error": member.error,
            "lag": None if lag is None else {name: getattr(lag, name) for name in LagFacts.__slots__},
            "status": plain(member.document),
        }

    return {"cluster": group.cluster, "brokerName": group.name, "brokers": [of(one) for one in group.members]}


@dataclass(frozen=True, slots=True)
class Progress:
    """A replica that is catching up with its master."""

    name: str
    done: int
    total: int
    bytes_per_second: float
    seconds_left: float | None  # None: its lag does not shrink

    def __str__(self) -> str:
        left = "the lag does not shrink" if self.seconds_left is None else f"{self.seconds_left:.0f} s left"
        share = 100 * self.done / max(1, self.total)
        return f"{share:.0f} % of {self.total / MIB:.1f} MiB, {self.bytes_per_second / MIB:.1f} MiB/s, {left}"


class CatchUp:
    """Measures how fast replicas catch up, from one measurement to the next."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int, int]] = {}  # name -> (time, its end, its lag)
        self._begun: dict[str, int] = {}  # name -> its end when it began to catch up

    def measure(self, groups: Sequence[Group], now: float) -> list[Progress]:
        """The replicas that are catching up, with their rate since the last measurement."""
        found = []
        for group in groups:
            for replica in group.replicas:
                lag = group.lags.get(replica.broker_id)
                if lag is None or lag.bytes is None or replica.log_end is None:
                    continue
                progress = self._progress(f"{group.name}/{replica.broker_id}", replica.log_end, lag.bytes, now)
                if progress is not None:
                    found.append(progress)
        return found

    def _progress(self, name: str, end: int, behind: int, now: float) -> Progress | None:
        seen, self._seen[name] = self._seen.get(name), (now, end, behind)
        if behind < _BEHIND_BYTES_MIN:
            self._begun.pop(name, None)
            return None
        begun = self._begun.setdefault(name, end)
        rate = nearing = 0.0
        if seen is not None and now > seen[0]:
            rate = (end - seen[1]) / (now - seen[0])
            nearing = (seen[2] - behind) / (now - seen[0])
        return Progress(name, end - begun, end - begun + behind, rate, behind / nearing if nearing > 0 else None)
