"""What a second core brings to the store source: one Spark session after the other, each bound to its CPUs.

A session with one task slot still keeps two CPUs busy, since the JVM takes over the rows of one batch while the Python
worker makes the next. So "one core" here is one CPU for all of it: JVM, collector, compiler and worker. The other row
leaves all CPUs to both sides and compares one task at a time with two.
"""

from __future__ import annotations

import os

from bench.rows import Row, console
from bench.spark_runner import spark_runner

_READS = 2  # of each session, after one that warms it up


def measure_cores(job: dict, rounds: int) -> list[Row]:
    """Rows per second of one job, in alternating rounds of a session on one CPU and one on two."""
    everything = len(os.sched_getaffinity(0))
    if everything < 2:
        console.print("  Spark, cores: skipped, this machine lets us use one CPU and the comparison needs two")
        return []
    plans = {(1, 1), (2, 2), (1, everything), (2, everything)}  # tasks at a time, CPUs; with two CPUs, two are one
    rates: dict[tuple[int, int], list[float]] = {plan: [] for plan in plans}
    for number in range(rounds):
        for tasks, cpus in sorted(plans, reverse=bool(number % 2)):
            with spark_runner(f"local[{tasks}]", cpus=cpus) as alone:
                alone.run(**job)
                for _ in range(_READS):
                    found = alone.run(**job)
                    rates[tasks, cpus].append(found["rows"] / found["seconds"])
        console.print(f"  Spark, cores: round {number + 1} of {rounds}")
    cores = Row("Spark store source on two CPUs, two tasks (Java's column: one CPU, one task)", "rows/s", ">= 1.6")
    cores.twinlog, cores.java = rates[2, 2], rates[1, 1]
    slots = Row("Spark store source, two tasks at a time, all CPUs (Java's column: one task, all CPUs)", "rows/s", "")
    slots.twinlog, slots.java = rates[2, everything], rates[1, everything]
    return [cores, slots]
