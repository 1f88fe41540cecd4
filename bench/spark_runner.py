"""A Spark session in a process of its own, which runs the jobs that it reads from standard input.

    python -m bench.spark_runner local[2] "" 2

The arguments are the master, jars, and how many CPUs the session may use; 0 is all. Every line that follows is a JSON
object: what to read, and where to put it. The answer has the rows, the seconds, the CPU seconds of Spark with its
Python workers, and the largest of these workers in MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.sampling import sampled
from bench.servers import rss_mb
from twinlog.spark.session import start

ROOT = Path(__file__).parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")


class Runner:
    """The other end of the pipe."""

    def __init__(self, master: str, jars: str = "", cpus: int = 0) -> None:
        command = [sys.executable, "-m", "bench.spark_runner", master, jars, str(cpus)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, **job: Any) -> dict[str, float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"rows"'):
                return json.loads(line)
        raise RuntimeError(f"Spark ended while it ran {job}")

    def close(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def spark_runner(master: str, jars: str = "", cpus: int = 0) -> Iterator[Runner]:
    """A session; with `cpus` it, its JVM and its Python workers share that many and see no others."""
    runner = Runner(master, jars, cpus)
    try:
        yield runner
    finally:
        runner.close()


def _run(spark, job: dict[str, Any]) -> dict[str, float]:
    if "archive" in job or "archive_with_spark" in job:
        return _archive(spark, job)
    if "range" in job:
        frame = spark.range(0, job["range"], 1, 8)
    else:
        reader = spark.read.format(job["format"]).options(**job["options"])
        frame = (reader.schema(job["schema"]) if job.get("schema") else reader).load(job.get("path"))
    if job.get("select"):
        frame = frame.selectExpr(*job["select"])
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    seen = None
    if not job.get("to"):  # Spark's Kafka sink reports no count; the number of rows is known to the caller
        seen = Observation()
        frame = frame.observe(seen, count(lit(1)).alias("rows"))
    with sampled(_largest_worker_mb, 0.2) as watched:
        begun, before = time.perf_counter(), _cpu(_tree())
        writer = frame.write.format(job.get("to", "noop")).options(**job.get("to_options", {}))
        writer.mode("append" if job.get("to") else "overwrite").save()
        seconds = time.perf_counter() - begun
    return {
        "rows": seen.get["rows"] if seen is not None else -1,
        "seconds": seconds,
        "cpu": _cpu(_tree()) - before,
        "worker_mb": max(watched, default=0.0),
    }


def _archive(spark, job: dict[str, Any]) -> dict[str, float]:
    """A stream up to now into Parquet: by our job, or by Spark's own sink from whatever source."""
    with sampled(_largest_worker_mb, 0.2) as watched:
        begun, before = time.perf_counter(), _cpu(_tree())
        if "archive" in job:
            from twinlog.spark.jobs.archive.job import ArchiveJob, archive

            rows = archive(
                spark, ArchiveJob(**{**job["archive"], "topics": tuple(job["archive"]["topics"])})
            ).total.rows
        else:
            target = job["archive_with_spark"]
            stream = spark.readStream.format(job["format"]).options(**job["options"]).load()
            writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{target}/_checkpoint")
            query = writer.option("path", target).trigger(availableNow=True).start()
            query.awaitTermination()
            rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        seconds = time.perf_counter() - begun
    cpu = _cpu(_tree()) - before
    return {"rows": rows, "seconds": seconds, "cpu": cpu, "worker_mb": max(watched, default=0.0)}


def _largest_worker_mb() -> float:
    """Resident memory of the largest Python worker; mapped files count."""
    sizes = [0.0]
    for pid in _tree():
        with contextlib.suppress(OSError):  # it may just have ended
            if b"-m\0pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes():
                sizes.append(rss_mb(pid))
    return max(sizes)


def _tree() -> list[int]:
    """All processes below this one."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(_stat(path)[1]), []).append(int(path.name))
    found, waiting = [], [os.getpid()]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def _cpu(pids: list[int]) -> float:
    """CPU seconds of these processes and of those they have waited for."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(map(int, _stat(Path(f"/proc/{pid}"))[11:15]))
    return total / _TICKS


def _stat(path: Path) -> list[str]:
    return (path / "stat").read_text().rsplit(")", 1)[1].split()


def main() -> None:
    master, jars, cpus = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if cpus:  # before the JVM starts: it and all workers inherit this
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    conf = {"spark.driver.memory": "2g", "spark.log.level": "ERROR"} | ({"spark.jars": jars} if jars else {})
    spark = start("bench", master=master, conf=conf)
    for line in sys.stdin:
        print(json.dumps(_run(spark, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
