"""Plays mutated bytes until the time is over.

    python -m tools.fuzz [--target incoming] [--seconds 60] [--seed 1]

The corpus is what real RocketMQ software sent (tests/vectors). Each target shares the time; a failure prints its seed.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from collections.abc import Iterator

from tools.fuzz import incoming, nameserver, outgoing, protected

TARGETS = {
    "incoming": incoming.fuzz,
    "protected": protected.fuzz,
    "nameserver": nameserver.fuzz,
    "outgoing": outgoing.fuzz,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Mutated bytes against Twinlog.")
    parser.add_argument("--target", choices=list(TARGETS), help="this one only")
    parser.add_argument("--seconds", type=float, default=60.0, help="in all, shared by the targets")
    parser.add_argument("--seed", type=int, default=0, help="where to begin")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = [options.target] if options.target else list(TARGETS)
    for name in names:
        done = TARGETS[name](_seeds(options.seed, options.seconds / len(names)))
        print(f"{name}: {done}, nothing broke")


def _seeds(first: int, seconds: float) -> Iterator[int]:
    deadline = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count(first))


if __name__ == "__main__":
    main()
