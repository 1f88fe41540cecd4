"""`make soak`: a SYNC master and its replica are killed at random while messages are sent, round after round.

    python tools/soak.py [--minutes 30] [--seed N]

Each round ends with a judgement: every acknowledged message is on both brokers, and the logs are equal.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.faults.kill_run import KillRun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    deadline, seed, rounds = time.monotonic() + given.minutes * 60, given.seed, 0
    while time.monotonic() < deadline:
        rounds += 1
        with tempfile.TemporaryDirectory(prefix="twinlog-soak-") as home:
            print(f"round {rounds}, seed {seed} ...", end=" ", flush=True)
            print(KillRun(Path(home), seed).run(seconds=60))
        seed += 1
    print(f"{rounds} rounds, nothing acknowledged was lost")


if __name__ == "__main__":
    main()
