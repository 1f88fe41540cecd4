"""Latencies of a calm producer, 1,000 sends/s, alone and beside something heavy; Twinlog and Java in turn.

    alone          nothing else
    cold readers   four consumers of a log that is not in the page cache
    load           4 x 64 sends in flight
    new topics     2,000 topics are created
    key queries    messages by unique key, one after the other
    segment roll   the log goes on in a new file

Pages that a process has mapped stay in memory. So the log is made cold by stopping both brokers and dropping their
files from the page cache. At its start Java reads the newest three segments. What the readers read lies before those,
and each round has a part of the log that nobody has read.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop.twinlog_servers import Twinlog

from bench.rows import Row, console
from bench.servers import running
from bench.tail_load import READERS

Load = Callable[..., dict]
ROOT = Path(__file__).parent.parent
SEGMENT_BYTES = 64 << 20
COLD_BODY = 4096
MEASURES = ("p50", "p99", "p99.9", "max")
SCENES = ("alone", "cold readers", "load", "new topics", "key queries", "segment roll")
_LEAD_S = 0.5  # what goes on beside the producer begins earlier


def measure_tails(folder: Path, load: Load, *, rounds: int, seconds: float, cold_mb: int) -> list[Row]:
    rows = {
        (scene, measure): Row(
            f"calm producer, {scene}: {measure}", "ms", ">= 1" if "p99" in measure else "", higher_is_better=False
        )
        for scene in SCENES
        for measure in MEASURES
    }
    messages = cold_mb * (1 << 20) // COLD_BODY // READERS
    with Twinlog().name_server(folder / "names") as names:
        with _both(folder, names.address) as addresses:
            for side, address in addresses.items():
                for number in range(rounds):
                    run("cold", address, f"Cold{number}", "--messages", messages, "--body", COLD_BODY)
                run("fill", address, "Between", "--messages", 4 * SEGMENT_BYTES // (1 << 16), "--body", 1 << 16)
                run("fill", address, "Keys", "--messages", 20_000, "--body", 128)
                console.print(f"  tails: {side} is filled")
        drop_page_cache(folder)
        with _both(folder, names.address) as addresses:
            for address in addresses.values():  # Java compiles
                load("pipelined", address, "Warm", "--body", 128, "--seconds", seconds)
                run("calm", address, "Calm", "--seconds", seconds)
            for number in range(rounds):
                for scene in SCENES:
                    for side in ("java", "twinlog") if number % 2 else ("twinlog", "java"):
                        result = _scene(scene, addresses[side], number, seconds, messages)
                        for measure in MEASURES:
                            getattr(rows[scene, measure], side).append(result[measure])
                        shown = " ".join(f"{measure} {result[measure]:.1f}" for measure in MEASURES)
                        console.print(f"  tails, {scene}, {side}: {shown} ms {result.get('beside', '')}")
    return list(rows.values())


def _scene(scene: str, address: str, number: int, seconds: float, messages: int) -> dict:
    beside: list[object] = []
    long = seconds + 2 * _LEAD_S
    if scene == "cold readers":
        beside = ["bench.tail_load", "readers", address, f"Cold{number}", "--seconds", long, "--messages", messages]
    elif scene == "load":
        beside = ["bench.load", "pipelined", address, "Load", "--seconds", long, "--body", 128]
    elif scene == "new topics":
        beside = ["bench.tail_load", "topics", address, f"New{number}", "--seconds", long]
    elif scene == "key queries":
        beside = ["bench.tail_load", "queries", address, "Keys", "--seconds", long]
    elif scene == "segment roll":
        run("approach", address, "Roll", "--segment", SEGMENT_BYTES)
    body = 1024 if scene == "segment roll" else 128
    if not beside:
        return run("calm", address, "Calm", "--seconds", seconds, "--body", body)
    words = [sys.executable, "-m", *map(str, beside)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(_LEAD_S + 0.3)
        result = run("calm", address, "Calm", "--seconds", seconds, "--body", body)
        out, errors = process.communicate(timeout=120)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{errors[-2000:]}")
    return {**result, "beside": _shown(json.loads(out))}


def _shown(result: dict) -> str:
    return " ".join(f"{name} {value:,.0f}" for name, value in result.items())


def run(kind: str, address: str, topic: str, *args: object) -> dict:
    command = [sys.executable, "-m", "bench.tail_load", kind, address, topic, *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


@contextlib.contextmanager
def _both(folder: Path, names: str) -> Iterator[dict[str, str]]:
    conf = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}
    with (
        running("java", folder / "java", names, **conf) as (java, _),
        running("twinlog", folder / "twinlog", names, brokerName="broker-t", **conf) as (twinlog, _),
    ):
        yield {"twinlog": twinlog.address, "java": java.address}


def drop_page_cache(folder: Path) -> None:
    """Forget what the system has in memory of the files below `folder`; no process may have them mapped."""
    os.sync()  # pages that are not written yet cannot be dropped
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
