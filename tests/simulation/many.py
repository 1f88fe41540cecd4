"""Many histories, one seed after the other: a row of `make soak`."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.checker import Violation
from tests.simulation.history import run_history


def simulate(_: Path, seed: int, side: str, *, rounds: int = 100) -> str:
    """Run the histories of `rounds` seeds; a Violation names the first seed that fails, and how to replay it."""
    acks = epochs = 0
    for number in range(seed, seed + rounds):
        outcome = run_history(number)
        if outcome.violation is not None:
            raise Violation(str(outcome))
        acks, epochs = acks + outcome.acks, epochs + outcome.epochs
    return f"{rounds} histories from seed {seed}, {acks} acknowledgements, {epochs} epochs, every promise held"
