"""All rows by name, with the lengths of their long form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.group import JAVA, TWINLOG
from tests.faults.rows import (
    archives,
    clocks,
    damage,
    disks,
    failover,
    garbage,
    kills,
    links,
    processes,
    quorums,
    rejoins,
    system_calls,
    tables,
)
from tests.simulation.many import simulate

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
    Row("kill -9 master, failover, SYNC", failover.kill_master, {"rounds": 20}, (TWINLOG,)),
    Row("kill -9 master, failover, ASYNC", failover.kill_master, {"rounds": 20, "role": "ASYNC_MASTER"}, (TWINLOG,)),
    Row("SIGSTOP master, failover", failover.stop_master, {"rounds": 3, "stopped_s": 25}, (TWINLOG,)),
    Row("SIGSTOP replica, failover", failover.stop_replica, {"rounds": 3, "stopped_s": 25}, (TWINLOG,)),
    Row("one, two, all of three etcds killed", quorums.etcd_members, {"rounds": 3, "away_s": 20}, (TWINLOG,)),
    Row("partitions, failover", quorums.failover_partition, {"seconds": 30}, (TWINLOG,)),
    Row("all of etcd away", failover.etcd_away, {"rounds": 3, "away_s": 30}, (TWINLOG,)),
    Row("full disk of the master", disks.full_disk_of_master, {"rounds": 5}),
    Row("full disk of the replica", disks.full_disk_of_replica, {"rounds": 5}),
    Row("full disks of etcd", quorums.full_disks, {"rounds": 2}, (TWINLOG,)),
    Row("power cut on both", disks.power_cut, {"rounds": 20}),
    Row("divergent rejoin, killed", rejoins.divergent_rejoin, {}, (TWINLOG,)),
    Row("5,000 topics and 2,000 groups", tables.many_topics, {}),
    Row("offsets committed at the replica", tables.offsets_at_replica, {"rounds": 5}),
    Row("clock one hour forward and back", clocks.wrong_clock, {"rounds": 3}, (TWINLOG,)),
    Row(
        "garbage on all ports",
        garbage.garbage,
        {"streams": 100_000, "frames": 1_000_000, "rate": 4000, "greedy_s": 30, "p99_times": 2},
    ),
    Row("messages of 4 MiB", links.large_messages, {"rounds": 20}),
    Row("replica on 1 Mbit/s", links.slow_link, {"seconds": 30, "large_bytes": 4 << 20}),
    Row("partitions", links.partition, {"seconds": 30}),
    Row("partition, replica promoted", links.partition_promoted, {"seconds": 30}),
    Row("simulated histories of failover", simulate, {"rounds": 10_000}, (TWINLOG,)),
    Row("torn tails", damage.torn_tails, {}, (TWINLOG,)),
    Row("bit flips", damage.bit_flips, {"flips": 1000}),
    Row("one failed fsync", system_calls.failed_fsync, {"rounds": 5}, (TWINLOG,)),
    Row("kill at each system call of a save", system_calls.kill_in_save, {}, (TWINLOG,)),
    Row("kill at each system call of a role change", system_calls.kill_in_role_change, {}, (TWINLOG,)),
    Row("kill -9 of an archive in a bucket", archives.kill_archive, {"rounds": 20}, (TWINLOG,)),
]
