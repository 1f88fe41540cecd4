"""Sends over TLS and sends signed by an account, beside the same sends in the open; Twinlog and Java in turn.

Each side is compared with Java, and with itself: what is left of its own speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.test_protected_master import PROTECTED

from bench.connections import TLS
from bench.rows import Row, console
from bench.sends import LOAD_CPU_MAX, Load, keep
from bench.servers import JAVA_VERSION, Brokers, both_brokers, cpu_seconds, in_turn
from bench.shapes import SHAPES

NAMES = ("main", "main-1k", "own-queue")
ACCOUNT = "twinlogkey:12345678"
KEPT_GOAL = 80  # percent of the sends without accounts
# The load generator signs its sends only; these two make the topic and ask for the ends of its queues.
_UNSIGNED = {"authenticationWhitelist": "17,30", "authorizationWhitelist": "17,30"}

Rows = dict[str, tuple[Row, Row, Row]]


@dataclass(frozen=True)
class Way:
    """One of the two ways in which the same messages are sent."""

    name: str
    brokers: Brokers
    mark: str = ""  # before the address
    words: Sequence[str] = ()


def measure_tls(folder: Path, load: Load, *, rounds: int, seconds: float, quick: bool = False) -> list[Row]:
    """Both listen for TLS on the same port with a certificate that they made at the start; clear text is beside it."""
    rows = {name: _rows("over TLS", "in clear text", SHAPES[name].title, "") for name in chosen(quick)}
    with both_brokers(folder) as brokers:
        ways = Way("plain", brokers), Way("tls", brokers, mark=TLS)
        _measure(load, rows, ways, rounds, seconds, quick=quick)
    return [row for some in rows.values() for row in some]


def measure_accounts(folder: Path, load: Load, *, rounds: int, seconds: float, quick: bool = False) -> list[Row]:
    """A pair that checks accounts and permissions beside a pair that checks nothing."""
    goal = f">= {KEPT_GOAL} %"
    rows = {name: _rows("signed by an account", "not signed", SHAPES[name].title, goal) for name in chosen(quick)}
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(both_brokers(folder / "open"))
        closed = stack.enter_context(both_brokers(folder / "closed", **PROTECTED[JAVA_VERSION], **_UNSIGNED))
        ways = Way("open", opened), Way("signed", closed, words=("--account", ACCOUNT))
        _measure(load, rows, ways, rounds, seconds, quick=quick)
    return [row for some in rows.values() for row in some]


def chosen(quick: bool) -> tuple[str, ...]:
    return NAMES[:1] if quick else NAMES


def _rows(how: str, beside: str, title: str, goal: str) -> tuple[Row, Row, Row]:
    return (
        Row(f"sends {how}, {title}", "messages/s", ">= 1"),
        Row(f"CPU of sends {how}, {title}", "us", "", higher_is_better=False),
        Row(f"sends {how}, of those {beside}, {title}", "%", goal),
    )


def _measure(load: Load, rows: Rows, ways: tuple[Way, Way], rounds: int, seconds: float, *, quick: bool) -> None:
    """Fill the rows: the second way, and its share of the first."""
    ciphers: dict[str, set[str]] = {}
    busiest = 0.0
    for number in range(-1, rounds):  # the first round warms up: Java compiles, both make their files
        for name in rows:
            for side in in_turn(number):
                found = {}
                for way in ways if number % 2 else ways[::-1]:
                    words = ["--shape", name, "--seconds", seconds, "--fixed", *way.words]
                    words += ["--created"] if number >= 0 and not quick else []
                    result, cpu_us = _round(load, way, side, f"Guarded_{name}_{way.name}", words)
                    found[way.name] = result["per_second"], cpu_us
                    busiest = max(busiest, result["load_cpu"])
                    if result["cipher"]:
                        ciphers.setdefault(side, set()).add(result["cipher"])
                if number >= 0:
                    (without, _), (rate, cpu_us) = (found[way.name] for way in ways)
                    keep(rows[name], side, rate, cpu_us, 100 * rate / without)
        console.print(f"  {', '.join(rows)}: round {number + 1} of {rounds}")
    for side, used in ciphers.items():
        console.print(f"  {side} was asked over {', '.join(sorted(used))}")
    verdict = "" if busiest <= LOAD_CPU_MAX else f"; above {LOAD_CPU_MAX:.0%} it may be the limit itself"
    console.print(f"  the load generator took at most {busiest:.0%} of a core{verdict}")


def _round(load: Load, way: Way, side: str, topic: str, words: list[object]) -> tuple[dict, float]:
    """What the load generator reports, and the broker's CPU per message in us."""
    before = cpu_seconds(way.brokers.pids[side])
    result = load("shape", way.mark + way.brokers.addresses[side], topic, *words)
    return result, (cpu_seconds(way.brokers.pids[side]) - before) / result["sent"] * 1e6
