"""The state of replication as tables and as progress. No I/O: computed from the answers of brokers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from twinlog.cli.replication.facts import Group, LagFacts, Member
from twinlog.cli.report import Report, Table, plain, when

MIB = 1024 * 1024
_BEHIND_BYTES_MIN = MIB  # below this a replica keeps up, and a progress bar would only flicker
_COLUMNS = "BID,Addr,Kind,State,InSync,Lag,Messages,Seconds,MB/s,LogEnd,Reason".split(",")
_COUNTED_OUT = "does not keep up: its master does not wait for it"
_NARROW = "BID,Addr,State,InSync,Lag,Seconds,LogEnd".split(",")
_NARROW_METADATA = "Kind,Age(s),Changes,Failures,Bytes".split(",")
_WIDE_COLUMNS = 130
_TASK_COLUMNS = "Task,State,Failures,Last,Error".split(",")
_METADATA_COLUMNS = "Kind,LastSync,Age(s),Version,Changes,Failures,Bytes,Error".split(",")


def is_narrow(out: TextIO) -> bool:
    """Whether `out` is a terminal on which all columns do not fit."""
    return out.isatty() and shutil.get_terminal_size().columns < _WIDE_COLUMNS


def report_of(groups: Sequence[Group], *, narrow: bool = False) -> Report:
    """Two kinds of tables: the replicas of each master, and each replica's metadata.

    `narrow`: only the columns that fit 80 characters, and reasons in lines of their own.
    """
    tables, lines = list[Table](), list[str]()
    for group in groups:
        rows = [_row(replica, group.lags.get(replica.broker_id)) for replica in group.replicas]
        reasons = [f"{group.name}: replica {row[0]}: {row[-1]}" for row in rows if row[-1]]
        tables.append(_only(_NARROW, Table(_COLUMNS, rows, _title(group)), narrow))
        lines += reasons if narrow else []
        for member in group.members:
            if failed := member.document.get("failedTasks"):
                title = f"{group.name}: tasks of broker {member.broker_id} that failed unexpectedly; see its log"
                tables.append(Table(_TASK_COLUMNS, _task_rows(failed), title))
        for replica in group.replicas:
            if replica.document.get("metadata"):
                title = f"{group.name}: metadata of replica {replica.broker_id}"
                table = Table(_METADATA_COLUMNS, _metadata_rows(replica.document), title)
                lines += [f"{title}: {row[0]}: {row[-1]}" for row in table.rows if narrow and row[-1]]
                tables.append(_only(_NARROW_METADATA, table, narrow))
    lines += [] if groups else ["no brokers are registered"]
    return Report(tables, lines, [_data(group) for group in groups])


def _only(columns: Sequence[str], table: Table, narrow: bool) -> Table:
    if not narrow:
        return table
    places = [table.columns.index(name) for name in columns]
    return Table(columns, [[row[at] for at in places] for row in table.rows], table.title)


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
        f"{name}: master {master.address} ({master.kind}, {master.role}), log {master.log_start} to {master.log_end}"
        + (f", epoch {epoch}" if epoch else "")
        + (f", durable to {flushed}" if flushed is not None else "")
        + (f", {refused} connections refused" if refused else "")
    )


def _row(replica: Member, lag: LagFacts | None) -> Sequence[Any]:
    lag = lag or LagFacts()
    following = replica.document.get("following", {})
    state = following.get("state") or ("no answer" if replica.kind == "silent" else "")
    messages = None if lag.messages is None else f"{'' if lag.messages_exact else '~'}{lag.messages}"
    rate = following.get("bytesPerSecond", lag.bytes_per_second)
    return (
        replica.broker_id,
        replica.address,
        replica.kind,
        state,
        lag.in_sync,
        "unknown" if state == "refused" else lag.bytes,
        messages,
        None if lag.ms is None else lag.ms / 1000,
        None if rate is None else rate / MIB,
        replica.log_end,
        following.get("reason") or "; ".join(filter(None, [_COUNTED_OUT if lag.counted_out else "", replica.error])),
    )


def _metadata_rows(document: dict[str, Any]) -> list[Sequence[Any]]:
    now_ms, rows = document["nowMs"], []
    for kind, status in document["metadata"].items():
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
                status["error"],
            )
        )
    return rows


def _task_rows(failed: dict[str, Any]) -> list[Sequence[Any]]:
    return [
        (name, "paused" if one["paused"] else "running again", one["failures"], when(one["failedMs"]), one["error"])
        for name, one in sorted(failed.items())
    ]


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
