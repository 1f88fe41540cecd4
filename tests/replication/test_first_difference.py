"""Where two logs part is found by checksums of ranges alone."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from twinlog.replication.digests import ByteRange, first_difference


def search(one: bytes, other: bytes, begin: int, block_bytes: int) -> tuple[int | None, list[ByteRange]]:
    """(what the search finds, which ranges it asked for)."""
    asked: list[ByteRange] = []
    steps = first_difference(begin, len(one), block_bytes)
    try:
        wanted = next(steps)
        while True:
            asked.append(wanted)
            wanted = steps.send(one[wanted.begin : wanted.end] == other[wanted.begin : wanted.end])
    except StopIteration as found:
        return found.value, asked


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300), st.integers(1, 64))
def test_the_first_different_byte_is_found(data, place, begin, block_bytes):
    other = bytearray(data)
    if place < len(data):
        other[place] ^= 0x40
    found, asked = search(data, bytes(other), begin, block_bytes)
    assert found == (place if begin <= place < len(data) else None)
    assert all(one.begin >= begin for one in asked)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 64))
def test_of_equal_logs_every_byte_is_asked_for_once(data, block_bytes):
    found, asked = search(data, data, 0, block_bytes)
    assert found is None
    assert [asked[0].begin, *(one.end for one in asked)][-1] == len(data)
    assert all(one.end == after.begin for one, after in itertools.pairwise(asked))
