"""All rows by name, with the lengths of their long form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.group import JAVA, TWINLOG
from tests.faults.rows import disks, kills, processes

BOTH = (TWINLOG, JAVA)


@dataclass(frozen=True)
class Row:
    """One row; `sides` can run it, `long` has its lengths in `make soak`."""

    name: str
    run: Callable[..., str]
    long: dict[str, Any] = field(default_factory=dict)
    sides: tuple[str, ...] = BOTH


ROWS = [
    Row("kill either broker", kills.kill_either, {"rounds": 10, "seconds": 60}, (TWINLOG,)),
    Row("kill -9 replica", processes.kill_replica, {"rounds": 20}),
    Row("SIGSTOP replica", processes.stop_replica, {"rounds": 3, "stopped_s": 25}),
    Row("SIGSTOP master, replica promoted", processes.stop_master, {"rounds": 3, "stopped_s": 25}),
    Row("full disk of the master", disks.full_disk_of_master, {"rounds": 5}),
    Row("full disk of the replica", disks.full_disk_of_replica, {"rounds": 5}),
    Row("power cut on both", disks.power_cut, {"rounds": 20}),
]
