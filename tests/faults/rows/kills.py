"""A SYNC master and its replica, either of which is killed at random."""

from __future__ import annotations

from pathlib import Path

from tests.faults.group import TWINLOG
from tests.faults.kill_run import KillRun


def kill_either(home: Path, seed: int, side: str = TWINLOG, rounds: int = 10, seconds: float = 60) -> str:
    """What was acknowledged is on both brokers in the end, and their logs are equal."""
    histories = [KillRun(home / f"round-{n}", seed + n).run(seconds) for n in range(rounds)]
    sent, kept = sum(one.sent for one in histories), sum(len(one.acknowledged) for one in histories)
    return f"{sum(len(one.kills) for one in histories)} kills, {sent} sent, {kept} acknowledged, none lost"
