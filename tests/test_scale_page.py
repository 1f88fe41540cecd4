"""What docs/scale.md computes with is what docs/benchmarks.md has."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NUMBER = r"\d[\d,]*(?:\.\d+)?"
MAY_DIFFER = 0.05  # figures are rounded there; above this the arithmetic is to be done again
# The words around a figure of scale.md, and the row of benchmarks.md that it is from.
CITED = {
    "{} sends/s of 128 B, ": "sends, queues in turn, keys and a traceparent that differ",
    "128 B, {}/s of 1 KiB": "sends, queues in turn, keys and a traceparent that differ, 1 KiB",
    "{} messages/s of 1 KiB pulled": "pulls of 32 x 1 KiB",
    "{} sends/s of 128 B as SYNC_MASTER": "SYNC_MASTER with one replica, 4 x 64 in flight, 128 B",
    "{} MB/s to a replica that catches up": "catch-up of 2048 MiB, 1 KiB messages",
    "{} MB of memory idle": "memory of an idle broker",
    "idle, {} MB with 5,000 connections": "growth, 5,000 idle connections: memory",
    "(99 MB/s): half of {} on two cores": "archive to Parquet, 1 KiB",
    "from a store directory: half of {} on two cores": "Spark store source on two CPUs, two tasks",
    "{} GB/s of two equal stores compared": "audit of two equal 4 GiB stores, 2 cores, per core",
    "memory of a worker: {} MB": "Spark store source, 10 GB: the largest worker",
    "{} MB/s copied from an HA port": "sync of 1024 MiB of log from the HA port",
    "nothing took {} s for 500 brokers": "tick over 500 idle brokers",
}


def measured() -> dict[str, float]:
    rows = re.findall(rf"^\| (.+?) \| ({NUMBER})", (DOCS / "benchmarks.md").read_text(), re.M)
    return {name.partition(" (Java's column")[0]: float(value.replace(",", "")) for name, value in rows}


@pytest.mark.parametrize("words", CITED)
def test_a_figure_of_the_page_is_the_one_that_was_measured(words):
    pattern = re.escape(words).replace(r"\{\}", f"({NUMBER})")
    found = re.search(rf"(?<![\d,.]){pattern}", (DOCS / "scale.md").read_text())
    assert found, f"docs/scale.md has no {words!r} any more: change this list"
    cited, now = float(found[1].replace(",", "")), measured()[CITED[words]]
    assert cited == pytest.approx(now, rel=MAY_DIFFER), "measured again: update docs/scale.md and what it computes"
