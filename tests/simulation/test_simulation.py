"""Whole histories of a group under faults; each follows from its seed, so that a failure can be replayed.

`make soak` runs many more seeds.
"""

import pytest
from tests.simulation.history import run_history
from tests.simulation.mutants import MUTANTS

SEEDS = 150
SEEDS_PER_BUG = 150


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_every_promise_holds_in_every_history(first):
    for seed in range(first, first + 50):
        outcome = run_history(seed)
        assert outcome.violation is None, outcome.violation


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_planted_bug_is_found(bug):
    assert any(run_history(seed, bug).violation for seed in range(SEEDS_PER_BUG)), (
        f"the simulation does not find the bug {bug!r} ({MUTANTS[bug].what}) in {SEEDS_PER_BUG} histories"
    )


def test_a_seed_decides_everything():
    assert run_history(7) == run_history(7)
