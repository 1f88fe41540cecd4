"""Where fuzzed bytes come from: frames of real RocketMQ software, changed at random from a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

VECTORS = Path(__file__).parent.parent.parent / "tests" / "vectors"
INTERESTING = (b"\x00", b"\xff", b"\x01", b"\x02", b'"', b"{", b"}", b"\\u0001", b"-1", b"9999999999999", b"../", b"%")


class SeedFailed(Exception):
    """What a seed did; the seed repeats it."""

    def __init__(self, seed: int) -> None:
        super().__init__(f"failed with seed {seed}; --seed {seed} begins with it")


@contextlib.contextmanager
def named_seed(seed: int) -> Iterator[None]:
    """An error within is raised as SeedFailed, with itself as the cause."""
    try:
        yield
    except Exception as error:
        raise SeedFailed(seed) from error


def corpus(kind: str) -> list[bytes]:
    """The captured frames and those that RocketMQ's own classes made: `req` or `resp`."""
    paths = sorted([*VECTORS.glob(f"wire-*-{kind}.hex"), *VECTORS.glob(f"class-*-{kind}-*.hex")])
    return [bytes.fromhex("".join(path.read_text().split())) for path in paths]


def mutate(frame: bytes, dice: random.Random) -> bytes:
    """A frame with a few bytes changed, cut, doubled or moved; half the time with a length that fits again."""
    data = bytearray(frame)
    for _ in range(dice.choice((0, 1, 1, 2, 4, 8))):
        at = dice.randrange(len(data)) if data else 0
        match dice.randrange(5):
            case 0 if data:
                data[at] = dice.randrange(256)
            case 1:
                data[at:at] = dice.choice(INTERESTING)
            case 2:
                del data[at : at + dice.randrange(1, 9)]
            case 3:
                data[at : at + 4] = dice.choice(INTERESTING) * 2
            case _:
                data[at:at] = data[at : at + dice.randrange(1, 40)]
    if len(data) >= 8 and dice.random() < 0.5:
        data[:4] = (len(data) - 4).to_bytes(4, "big")
        data[4] &= 1
        header = min(int.from_bytes(data[5:8], "big"), len(data) - 8)
        data[5:8] = header.to_bytes(3, "big")
    return bytes(data)
