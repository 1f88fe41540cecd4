"""A flipped bit is found, never served, and repaired: the short form."""

import random

from tests.faults.rows import damage


def test_a_flipped_bit_is_found_and_repaired_and_never_served(tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    damage.bit_flips(tmp_path, seed, flips=15)
