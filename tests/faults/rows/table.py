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
    """One row; `sides` can run it, `long` has its lengths in `make soak`, which take about `minutes`."""

    name: str
    minutes: float  # of Twinlog's side on two cores that do nothing else
    run: Callable[..., str]
    long: dict[str, Any] = field(default_factory=dict)
    sides: tuple[str, ...] = BOTH


ROWS = [
    Row("kill either broker", 11, kills.kill_either, {"rounds": 10, "seconds": 60}, (TWINLOG,)),
    Row("kill -9 replica", 2, processes.kill_replica, {"rounds": 20}),
    Row("SIGSTOP replica", 2, processes.stop_replica, {"rounds": 3, "stopped_s": 25}),
    Row("SIGSTOP master, replica promoted", 2.5, processes.stop_master, {"rounds": 3, "stopped_s": 25}),
    Row("kill -9 master, failover, SYNC", 5, failover.kill_master, {"rounds": 20}, (TWINLOG,)),
    Row("kill -9 master, failover, ASYNC", 5, failover.kill_master, {"rounds": 20, "role": "ASYNC_MASTER"}, (TWINLOG,)),
    Row("SIGSTOP master, failover", 2.5, failover.stop_master, {"rounds": 3, "stopped_s": 25}, (TWINLOG,)),
    Row("SIGSTOP replica, failover", 2, failover.stop_replica, {"rounds": 3, "stopped_s": 25}, (TWINLOG,)),
    Row("one, two, all of three etcds killed", 5, quorums.etcd_members, {"rounds": 3, "away_s": 20}, (TWINLOG,)),
    Row("partitions, failover", 11, quorums.failover_partition, {"seconds": 30}, (TWINLOG,)),
    Row("all of etcd away", 3, failover.etcd_away, {"rounds": 3, "away_s": 30}, (TWINLOG,)),
    Row("full disk of the master", 1, disks.full_disk_of_master, {"rounds": 5}),
    Row("full disk of the replica", 2, disks.full_disk_of_replica, {"rounds": 5}),
    Row("full disks of etcd", 2, quorums.full_disks, {"rounds": 2}, (TWINLOG,)),
    Row("power cut on both", 4, disks.power_cut, {"rounds": 20}),
    Row("divergent rejoin, killed", 2, rejoins.divergent_rejoin, {}, (TWINLOG,)),
    Row("5,000 topics and 2,000 groups", 2, tables.many_topics, {}),
    Row("offsets committed at the replica", 2, tables.offsets_at_replica, {"rounds": 5}),
    Row("clock one hour forward and back", 2, clocks.wrong_clock, {"rounds": 3}, (TWINLOG,)),
    Row(
        "garbage on all ports",
        12,
        garbage.garbage,
        {"streams": 100_000, "frames": 1_000_000, "rate": 4000, "greedy_s": 30, "p99_times": 2},
    ),
    Row("messages of 4 MiB", 0.5, links.large_messages, {"rounds": 20}),
    Row("replica on 1 Mbit/s", 2, links.slow_link, {"seconds": 30, "large_bytes": 4 << 20}),
    Row("partitions", 6, links.partition, {"seconds": 30}),
    Row("partition, replica promoted", 1, links.partition_promoted, {"seconds": 30}),
    Row("simulated histories of failover", 10, simulate, {"rounds": 10_000}, (TWINLOG,)),
    Row("torn tails", 1, damage.torn_tails),
    Row("bit flips", 2, damage.bit_flips, {"flips": 1000}),
    Row("one failed fsync", 1, system_calls.failed_fsync, {"rounds": 5}),
    Row("kill at each system call of a save", 0.5, system_calls.kill_in_save, {}, (TWINLOG,)),
    Row("kill at each system call of a role change", 6, system_calls.kill_in_role_change, {}, (TWINLOG,)),
    Row("kill -9 of an archive in a bucket", 10, archives.kill_archive, {"rounds": 20}, (TWINLOG,)),
]
