"""What a synchronisation knows of each broker, in a file beside the replicas; read without Spark.

    <to>/_status/latest.json    the last tick, replaced after every tick
    <to>/_status/ticks/         every tick as a Parquet table, one row for each broker

Seconds of lag are measured with the driver's clock alone: `in_step_ms` is when a tick began that found nothing which
the replica does not hold by now. Clocks of brokers have no part in it, so a wrong one makes no lag. With a lag of
zero bytes it is zero; otherwise the replica is as old as that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from twinlog.base.atomic_file import replace_file
from twinlog.base.file_modes import Modes
from twinlog.base.safe_files import read_file
from twinlog.spark.errors import BadOption
from twinlog.wire.bodies import DataVersion

DIRECTORY, LATEST, TICKS = "_status", "latest.json", "ticks"
REPLICA_FOLDER = "twinlog-sync"  # in a replica directory, see sync.replica_state
OBSERVED_MAX = 64
_LATE_TICKS = 3  # a run is not ticking any more when so many ticks are missing
_LATE_MS_MIN = 30_000
_FORMAT = 1


class BrokerState(msgspec.Struct, rename="camel", kw_only=True):
    """One broker after its last tick."""

    broker: str
    address: str
    replica: str = ""
    replica_start: int = 0  # later than the master's after --keep
    replica_end: int = 0
    master_end: int = 0  # as it was seen last
    lag_bytes: int | None = None  # unknown while the master does not answer
    lag_seconds: float | None = None  # unknown before the first copy is complete
    in_step_ms: int | None = None
    copied_bytes: int = 0  # in the last tick
    changes: int = 0  # of metadata, in the last tick
    versions: dict[str, DataVersion] = {}  # of the replica's tables, by kind
    seconds: float = 0.0  # that the last tick took
    error: str = ""  # of the last tick
    failing_since_ms: int | None = None
    failed_ticks: int = 0  # in a row
    observed: list[tuple[int, int]] = []  # when the master's log ended where; ends that the replica has not reached


class SyncStatus(msgspec.Struct, rename="camel", kw_only=True):
    """The last tick of a synchronisation."""

    format: int = _FORMAT
    tick: int
    began_ms: int  # the tick
    written_ms: int
    every_ms: int
    once: bool = False
    ended_ms: int | None = None  # set when the run ended by itself or was stopped
    error: str = ""  # that ended the run
    host: str = ""
    pid: int = 0
    brokers: list[BrokerState] = []

    def is_running(self, now_ms: int) -> bool:
        """Whether ticks still come: the run has not ended, and the last tick is not long ago."""
        late_ms = max(_LATE_TICKS * self.every_ms, _LATE_MS_MIN)
        return self.ended_ms is None and now_ms - self.written_ms <= late_ms


def observed(
    before: BrokerState | None, *, began_ms: int, now_ms: int, end: int, master_end: int, answered: bool
) -> tuple[int | None, float | None, list[tuple[int, int]]]:
    """(in_step_ms, lag_seconds, observed) after a tick that began at `began_ms`."""
    in_step_ms = None if before is None else before.in_step_ms
    seen = [] if before is None else list(before.observed)
    if answered:  # a master that lost its tail will not reach these ends again
        seen = [one for one in seen if one[1] <= master_end]
    if answered and (not seen or master_end > seen[-1][1]):
        seen.append((began_ms, master_end))
    reached = [one for one in seen if one[1] <= end]
    if answered and end >= master_end:
        in_step_ms = began_ms
    elif reached:
        in_step_ms = max(in_step_ms or 0, reached[-1][0])
    waiting = [one for one in seen if one[1] > end]
    while len(waiting) > OBSERVED_MAX:  # far behind: every second one is enough, and the last
        waiting = [*waiting[:-1:2], waiting[-1]]
    if answered and end >= master_end:
        return in_step_ms, 0.0, waiting
    return in_step_ms, None if in_step_ms is None else max(0, now_ms - in_step_ms) / 1000, waiting


def age_seconds(one: BrokerState, now_ms: int, *, ticking: bool = True) -> float | None:
    """The lag in seconds as it is now: between two ticks, a replica that is behind gets older.

    Without ticks every replica does: nobody knows what its master has received since.
    """
    if one.lag_bytes == 0 and ticking:
        return 0.0
    return None if one.in_step_ms is None else max(0, now_ms - one.in_step_ms) / 1000


def save_status(to: Path, status: SyncStatus, modes: Modes | None = None) -> None:
    replace_file(to / DIRECTORY / LATEST, [msgspec.json.encode(status)], modes)


def load_status(to: Path) -> SyncStatus | None:
    """The last tick of the synchronisation that writes to this directory; None before its first."""
    path = to / DIRECTORY / LATEST
    try:
        data = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(data, type=SyncStatus)
    except msgspec.DecodeError as error:
        raise BadOption(f"{path} is not a status ({error}): remove it, the next tick writes it again") from error


def status_of(directory: str | Path) -> SyncStatus:
    """The same; BadOption says why a directory has none, and what to give instead."""
    to = Path(directory)
    if not to.exists():
        raise BadOption(f"{to} does not exist: give the directory of `twinlog pipeline sync --to`")
    if not to.is_dir():
        raise BadOption(f"{to} is a file: give the directory of `twinlog pipeline sync --to`")
    found = load_status(to)
    if found is not None:
        return found
    if (to / REPLICA_FOLDER).is_dir():
        raise BadOption(f"{to} is one replica: give the directory above it, {to.absolute().parent}")
    if any(to.glob(f"*/{REPLICA_FOLDER}")):
        raise BadOption(f"{to} has replicas and no status yet: it comes with the next tick of `twinlog pipeline sync`")
    raise BadOption(f"{to} is not written by a synchronisation: give the directory of `twinlog pipeline sync --to`")


def by_broker(status: SyncStatus | None) -> Mapping[str, BrokerState]:
    return {} if status is None else {one.broker: one for one in status.brokers}
