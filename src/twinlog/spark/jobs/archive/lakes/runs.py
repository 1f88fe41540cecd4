"""Is the run that began last still at work? Without comparing clocks, and without a lock that outlives its process.

A run rewrites `_runs/<kind>-<run>.json` every few seconds, with a counter. Another one that finds it watches the
counter, by its own clock: if it moves, the run is alive and the second is refused; if not, the second takes over. On
the same machine a process that no longer exists needs no waiting. A wrong guess does no harm: only the last can add.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive.lakes.chain import Busy, Chain, this_process
from twinlog.spark.lake.lake import Lake
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
RUNS = "_runs"
BEAT_S = 5.0
_SILENT_S = 4 * BEAT_S  # a run whose counter stands still for so long is taken for dead
_POLL_S = 1.0
_DEAD = ("Z", "X")  # killed, and its parent has not asked for its end


@contextlib.contextmanager
def beating(lake: Lake, role: str, run: str) -> Iterator[None]:
    """Show others that this run is alive, while the block runs."""
    over = threading.Event()
    values = {"role": role, "by": this_process(), **_identity()}

    def beat(count: int) -> None:
        lake.write(_name(role, run), json.dumps({**values, "beat": count}).encode())

    def keep_beating() -> None:
        count = 1
        while not over.wait(BEAT_S):
            try:
                beat(count)
            except SparkSourceError as error:  # the job's own requests fail as well, and say so
                log.warning("a run could not show that it is alive", error=str(error))
            count += 1

    beat(0)
    thread = threading.Thread(target=keep_beating, daemon=True, name=f"beat-{role}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(SparkSourceError):
            lake.delete([_name(role, run)])


def claim(
    lake: Lake,
    chain: Chain,
    role: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """The run that this one takes over from, which is dead; None if none is open; Busy if it is alive."""
    owner = chain.state.owner(role)
    if owner is None:
        return None
    first = _load(lake, role, owner)
    if first is None or _is_gone(first):
        return owner
    until = clock() + _SILENT_S
    while clock() < until:
        sleep(_POLL_S)
        chain.refresh()
        if chain.state.owner(role) != owner:  # it has ended, or yet another one took over
            return claim(lake, chain, role, sleep, clock)
        now = _load(lake, role, owner)
        if now is None:
            return owner
        if now.get("beat") != first.get("beat"):
            raise Busy(lake.root, role, str(first.get("by")))
    return owner


def remove_beats(lake: Lake, role: str, run: str) -> None:
    """Remove the signs of life of all runs of this kind but one."""
    lake.delete(entry.name for entry in lake.list(f"{RUNS}/{role}-") if entry.name != _name(role, run))


def _name(role: str, run: str) -> str:
    return f"{RUNS}/{role}-{run}.json"


def _load(lake: Lake, role: str, run: str) -> Mapping[str, Any] | None:
    data = lake.read(_name(role, run))
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _identity() -> dict[str, Any]:
    return {"machine": _machine(), "process": os.getpid(), "started": _started(os.getpid())}


def _is_gone(beat: Mapping[str, Any]) -> bool:
    """Whether this is a process of this machine that no longer exists."""
    if beat.get("machine") is None or beat.get("machine") != _machine():
        return False
    return _started(beat.get("process", 0)) != beat.get("started")


def _machine() -> str | None:
    """This machine since its start, and this container: process numbers are unique within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(process: int) -> str | None:
    """When a process started, in the kernel's ticks; None if there is none with this number."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in _DEAD else fields[19]
