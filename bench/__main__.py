"""`make bench`: Twinlog and Java 5.5.0 in alternating rounds; medians, ratios, and Java against itself for the noise.

    python -m bench                 everything, about an hour
    python -m bench --quick         short rounds, to see that it works
    python -m bench --only shapes   one part, by the names in PARTS
    python -m bench --shape oneway  one shape of sends, by the names in bench/shapes.py

The table goes to the terminal, the numbers to bench/results/<date>.json and bench/results/latest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from tests.interop.twinlog_servers import Twinlog

from bench import growth, recovery, replication
from bench.clients import measure_clients
from bench.failover import measure_failover
from bench.java_client import SCENES, measure_java_client
from bench.metadata import measure_metadata
from bench.protected import measure_accounts, measure_tls
from bench.rows import Row, console, print_table
from bench.sends import measure_shapes
from bench.servers import JAVA_VERSION, both_brokers, in_turn, rss_mb, running
from bench.shapes import SHAPES
from bench.tails import measure_tails

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
BROKER_PARTS = (
    "shapes",
    "java-client",
    "clients",
    "pulls",
    "start",
    "recovery",
    "catch-up",
    "sync",
    "failover",
    "lag",
    "metadata",
    "tails",
    "tls",
    "accounts",
)
SPARK_PARTS = (
    "spark-wire",
    "spark-store",
    "spark-write",
    "spark-archive",
    "spark-sync",
    "spark-audit",
    "spark-fleet",
)
PARTS = (*BROKER_PARTS, *growth.PARTS, *SPARK_PARTS)
# What a short run leaves out takes its time for servers and their start, not for what it measures.
# A Spark session, its Kafka and their warm-up take half a minute for each part. "sync" stands for what needs pairs of
# brokers, "java-client" for other clients, and "tls" for "accounts". Growth needs something that has grown.
NOT_QUICK = (
    "accounts",
    "clients",
    "failover",
    "lag",
    "metadata",
    "growth-topics",
    "growth-connections",
    "growth-replicas",
    "growth-consumers",
    "growth-log",
    "spark-wire",
    "spark-store",
    "spark-write",
    "spark-archive",
    "spark-sync",
    "spark-audit",
    "spark-fleet",
)


@dataclass
class Options:
    seconds: float
    rounds: int
    fill: int
    log_mb: int
    behind_mb: int
    spark_rows: int
    store_gb: tuple[int, ...]
    fleet: int
    backlog: int  # messages that a push consumer reads
    quick: bool
    keep: bool = False  # in latest.json, from which the documents' tables are made


def load(kind: str, address: str, topic: str, *args: object) -> dict:
    """Run the load generator as a process of its own."""
    command = [sys.executable, "-m", "bench.load", kind, address, topic, *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure_pulls(folder: Path, options: Options) -> list[Row]:
    row = Row("pulls of 32 x 1 KiB", "messages/s", ">= 1.1")
    with both_brokers(folder) as brokers:
        for address in brokers.addresses.values():
            load("fill", address, "Pull", "--body", 1024, "--messages", options.fill)
            time.sleep(2)
        for number in range(-1, options.rounds):  # the first round warms up
            for side in in_turn(number):
                words = ("--messages", options.fill, "--seconds", options.seconds)
                result = load("pull", brokers.addresses[side], "Pull", *words)
                if number >= 0:
                    getattr(row, side).append(result["per_second"])
            console.print(f"  pulls: round {number + 1} of {options.rounds}")
    return [row]


def measure_start(folder: Path, options: Options) -> list[Row]:
    ready = Row("ready on an empty store", "s", "<= 1 s", higher_is_better=False)
    idle = Row("memory of an idle broker", "MB RSS", "<= 100 MB", higher_is_better=False)
    with Twinlog().name_server(folder / "names") as names:
        for number in range(min(options.rounds, 3)):
            for side in in_turn(number):
                with running(side, folder / f"{side}-{number}", names.address) as (broker, seconds):
                    time.sleep(2)
                    getattr(ready, side).append(seconds)
                    getattr(idle, side).append(rss_mb(broker.pid))
    return [ready, idle]


def measure_recovery(folder: Path, options: Options) -> list[Row]:
    row = Row(f"recovery of {options.log_mb} MiB of 1 KiB messages after kill -9", "s", ">= 1", higher_is_better=False)
    for number in range(min(options.rounds, 3)):
        for side in in_turn(number):
            taken = recovery.measure(side, folder / f"{side}-{number}", options.log_mb, load)
            getattr(row, side).append(taken)
        console.print(f"  recovery: round {number + 1}")
    return [row]


def spark_measures() -> dict[str, Callable[[Path, Options], list[Row]]]:
    """The parts that run on Spark; imported only when a bench runs, since they need its extra."""
    from bench.spark_archive import measure_archive
    from bench.spark_audit import measure_audit
    from bench.spark_sources import measure_store, measure_wire
    from bench.spark_sync import measure_fleet_tick, measure_sync_copy
    from bench.spark_write import measure_write

    def rounds(options: Options) -> int:
        return min(options.rounds, 3)

    return {
        "spark-wire": lambda folder, o: measure_wire(folder, rounds=rounds(o), messages=o.spark_rows),
        "spark-store": lambda folder, o: measure_store(
            folder, rounds=rounds(o), messages=o.spark_rows, gigabytes=o.store_gb
        ),
        "spark-write": lambda folder, o: measure_write(folder, rounds=rounds(o), messages=o.spark_rows // 2),
        "spark-archive": lambda folder, o: measure_archive(folder, rounds=rounds(o), messages=o.spark_rows),
        "spark-sync": lambda folder, o: measure_sync_copy(folder, rounds=rounds(o), megabytes=o.log_mb),
        "spark-audit": lambda folder, o: measure_audit(folder, gigabytes=o.log_mb / 256, rounds=rounds(o)),
        "spark-fleet": lambda folder, o: measure_fleet_tick(folder, rounds=rounds(o), brokers=o.fleet),
    }


def measures_of(given: argparse.Namespace) -> dict[str, Callable[[Path, Options], list[Row]]]:
    """How each part is measured."""
    return {
        "shapes": lambda folder, options: measure_shapes(
            folder,
            load,
            rounds=given.rounds or min(options.rounds, 3),
            seconds=options.seconds,
            names=given.shape,
            quick=options.quick,
        ),
        "java-client": lambda folder, options: measure_java_client(
            folder,
            rounds=given.rounds or min(options.rounds, 3),
            seconds=options.seconds,
            backlog=options.backlog,
            names=given.scene,
            quick=options.quick,
        ),
        "clients": lambda folder, options: measure_clients(
            folder, rounds=min(options.rounds, 3), seconds=options.seconds, backlog=min(options.backlog, 200_000)
        ),
        "pulls": measure_pulls,
        "start": measure_start,
        "recovery": measure_recovery,
        "catch-up": lambda folder, options: replication.measure_catch_up(
            folder,
            load,
            rounds=min(options.rounds, 3),
            megabytes=options.behind_mb,
            quick=options.quick,
        ),
        "sync": lambda folder, options: replication.measure_sync(
            folder, load, rounds=options.rounds, seconds=options.seconds
        ),
        "failover": lambda folder, options: measure_failover(
            folder, load, rounds=options.rounds, seconds=options.seconds
        ),
        "lag": lambda folder, options: replication.measure_lag(folder, load, seconds=4 * options.seconds),
        "metadata": lambda folder, options: measure_metadata(folder, rounds=options.rounds),
        "tails": lambda folder, options: measure_tails(
            folder, load, rounds=min(options.rounds, 3), seconds=options.seconds, cold_mb=options.log_mb * 3 // 2
        ),
        "tls": lambda folder, o: measure_tls(
            folder, load, rounds=given.rounds or min(o.rounds, 3), seconds=o.seconds, quick=o.quick
        ),
        "accounts": lambda folder, o: measure_accounts(
            folder, load, rounds=given.rounds or min(o.rounds, 3), seconds=o.seconds, quick=o.quick
        ),
        **{name: partial(_grown, measure) for name, measure in growth.PARTS.items()},
        **spark_measures(),
    }


def _grown(measure: Callable[[Path, growth.Sizes], list[Row]], folder: Path, options: Options) -> list[Row]:
    return measure(folder, growth.QUICK if options.quick else growth.Sizes())


def parts_of(given: argparse.Namespace) -> list[str]:
    """The parts to run: those that were asked for, else those that a shape or scene belongs to, else all."""
    asked = given.only or [*(["shapes"] if given.shape else []), *(["java-client"] if given.scene else [])]
    return asked or [name for name in PARTS if not (given.quick and name in NOT_QUICK)]


def save(rows: list[Row], options: Options, partly: Collection[str] = ()) -> Path:
    """Where the figures are kept; of the parts `partly` not all rows were measured."""
    RESULTS.mkdir(exist_ok=True)
    document = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "java": JAVA_VERSION,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "options": asdict(options),
        "rows": [{**asdict(row), "ratio": row.ratio, "met": row.met, "java_against_java": row.noise} for row in rows],
    }
    path = RESULTS / f"{document['date'].replace(':', '')}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    if options.keep:
        _update_latest(document, {row.part for row in rows} - set(partly))
    return path


def _update_latest(document: dict, whole: set[str]) -> None:
    """latest.json has the newest measurement of every row; a part that ran whole leaves no older rows."""
    latest = RESULTS / "latest.json"
    older = json.loads(latest.read_text())["rows"] if latest.exists() else []
    rows = {row["name"]: row for row in older if row["part"] not in whole}
    rows |= {row["name"]: {**row, "measured": document["date"]} for row in document["rows"]}
    latest.write_text(json.dumps({**document, "rows": list(rows.values())}, indent=2) + "\n")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that it works")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; may be repeated")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="send only this shape; may be repeated")
    parser.add_argument(
        "--scene", choices=SCENES, action="append", help="this scene of the Java client; may be repeated"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--keep", action="store_true", help="a run with --rounds or --seconds goes to latest.json, too")
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the servers end with us
    options = (
        Options(0.5, 1, 20_000, 64, 128, 50_000, (1,), 40, 20_000, True)
        if given.quick
        else Options(3.0, 5, 200_000, 1024, 2048, 1_000_000, (3, 10), 500, 1_000_000, False)
    )
    options.keep = given.keep or not (given.quick or given.rounds or given.seconds)
    options.rounds, options.seconds = given.rounds or options.rounds, given.seconds or options.seconds
    rows, failed, begun = [], [], time.monotonic()
    measures, chosen = measures_of(given), parts_of(given)
    for name in chosen:
        console.print(f"[bold]{name}[/bold]")
        folder = Path(tempfile.mkdtemp(prefix="twinlog-bench-"))
        started = time.monotonic()
        try:
            rows += [replace(row, part=name) for row in measures[name](folder, options)]
        except Exception:  # the other parts still have something to say
            console.print_exception()
            failed.append(name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        console.print(f"  {name} took {time.monotonic() - started:.0f} s")
    print_table(rows)
    partly = [name for name, some in (("shapes", given.shape), ("java-client", given.scene)) if some]
    console.print(f"{time.monotonic() - begun:.0f} s in all, kept in {save(rows, options, partly)}")
    if left_out := [name for name in PARTS if name not in chosen]:
        console.print(f"left out: {', '.join(left_out)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
