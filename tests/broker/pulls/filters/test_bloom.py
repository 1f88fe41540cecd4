"""The Bloom filter sets the very bits that Java's does.

The expected positions were printed by BloomFilter.calcBitPositions of rocketmq-filter 5.5.0.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.pulls.filters.bloom import BloomFilter, has_bits, set_bits

NAMES = ["", "G#T", "group-1#TopicTest", "0123456789abcdef", "0123456789abcdef0123456789abcde", "消费组#主题", "😀"]


@pytest.mark.parametrize(
    ("error_percent", "expected", "hashes", "bits", "positions"),
    [
        (
            20,
            32,
            3,
            112,
            [(0, 0, 0), (24, 26, 83), (21, 32, 57), (11, 47, 60), (7, 97, 53), (101, 21, 111), (46, 57, 68)],
        ),
        (
            10,
            128,
            4,
            616,
            [
                (0, 0, 0, 0),
                (192, 82, 27, 174),
                (189, 536, 281, 444),
                (11, 215, 508, 304),
                (7, 601, 333, 275),
                (381, 525, 111, 179),
                (326, 505, 68, 247),
            ],
        ),
        (50, 1000, 1, 1448, [(0,), (256,), (869,), (251,), (39,), (965,), (1126,)]),
        (99, 7, 1, 8, [(0,), (0,), (5,), (3,), (7,), (5,), (6,)]),
        (30, 64, 2, 168, [(0, 0), (136, 138), (133, 88), (123, 103), (7, 153), (101, 21), (102, 1)]),
    ],
)
def test_shape_and_positions_are_javas(error_percent, expected, hashes, bits, positions):
    bloom = BloomFilter(error_percent, expected)
    assert (bloom.hashes, bloom.bits) == (hashes, bits)
    assert [bloom.positions(name) for name in NAMES] == positions


@given(st.lists(st.text(), max_size=8), st.text())
def test_a_name_that_was_set_is_always_found(names, name):
    bloom = BloomFilter(20, 32)
    bitmap = bytearray(bloom.byte_count)
    for each in [*names, name]:
        set_bits(bitmap, bloom.positions(each))
    assert has_bits(bytes(bitmap), bloom.positions(name))


def test_positions_of_another_shape_do_not_fit():
    bloom = BloomFilter(20, 32)
    assert bloom.fits(112, (1, 2, 3))
    assert not bloom.fits(112, (1, 2))
    assert not bloom.fits(120, (1, 2, 3))
    assert not bloom.fits(112, (1, 2, 112))
