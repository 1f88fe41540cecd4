"""The archive job beside a stream from Spark's Kafka source into Spark's Parquet sink, both up to now, from empty."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.rows import Row, console
from bench.spark_runner import Runner
from bench.spark_sources import TOPIC, Sources, filled


def measure_archive(folder: Path, *, rounds: int, messages: int) -> list[Row]:
    """Rows per second and CPU of the same messages, all columns of either source."""
    rate = Row("archive to Parquet, 1 KiB (Java's column: Kafka source to Parquet)", "rows/s", ">= 0.8")
    cpu = Row("archive to Parquet: CPU of 1 million rows (Kafka)", "s", "", higher_is_better=False)
    with filled(folder, messages, java=False) as (runner, sources):
        for number in range(rounds + 1):  # the first round warms both up
            theirs = _round(runner, folder / "to", {**sources.jobs["kafka"], "archive_with_spark": str(folder / "to")})
            ours = _round(runner, folder / "to", {"archive": _ours(sources, folder / "to")})
            if number:
                for row, name in ((rate, "rows/s"), (cpu, "cpu")):
                    row.twinlog.append(ours[name])
                    row.java.append(theirs[name])
                console.print(f"  archive: round {number} of {rounds}")
    return [rate, cpu]


def _ours(sources: Sources, target: Path) -> dict:
    return {"target": str(target), "name_server": sources.jobs["twinlog"]["options"]["nameServer"], "topics": [TOPIC]}


def _round(runner: Runner, target: Path, job: dict) -> dict[str, float]:
    shutil.rmtree(target, ignore_errors=True)
    found = runner.run(**job)
    return {"rows/s": found["rows"] / found["seconds"], "cpu": found["cpu"] / found["rows"] * 1e6}
