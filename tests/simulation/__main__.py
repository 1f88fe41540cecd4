"""Run histories: `python -m tests.simulation --seed N [--count N] [--mutant NAME] [--trace]`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.history import run_history
from tests.simulation.mutants import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="", help="the planted bug")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    given = parser.parse_args()
    begun, failed, acks, epochs = time.process_time(), 0, 0, 0
    for seed in range(given.seed, given.seed + given.count):
        outcome = run_history(seed, given.mutant, tracing=given.trace)
        failed, acks, epochs = failed + (outcome.violation is not None), acks + outcome.acks, epochs + outcome.epochs
        if outcome.violation is not None or given.count == 1:
            print(outcome)
    took = time.process_time() - begun
    print(f"{given.count} histories, {failed} failed, {acks} acknowledgements, {epochs} epochs, {took:.1f} s of CPU")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
