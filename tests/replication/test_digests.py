"""Checksums of ranges, and where two logs begin to differ."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.replication.digests import (
    RANGE_BYTES_MAX,
    ByteRange,
    blocks,
    first_difference,
    parse_ranges,
    range_digest,
    tail_search,
)


def search(begin: int, end: int, differs_from: int | None) -> tuple[int | None, list[ByteRange]]:
    """Run the search on two imagined logs that are equal before `differs_from` and different from there on."""
    asked, steps = [], tail_search(begin, end)
    try:
        wanted = next(steps)
        while True:
            asked.append(wanted)
            wanted = steps.send(differs_from is None or wanted.end <= differs_from)
    except StopIteration as found:
        return found.value, asked


@given(st.integers(0, 2**33), st.integers(0, 2**33), st.integers(0, 2**33))
def test_the_first_different_byte_is_found_in_few_questions(begin, size, at):
    end, differs_from = begin + size, begin + min(at, max(size - 1, 0))
    found, asked = search(begin, end, differs_from)
    if size == 0:
        assert found is None and not asked
        return
    assert found == differs_from
    assert all(begin <= one.begin < one.end <= end and one.end - one.begin <= RANGE_BYTES_MAX for one in asked)
    assert len(asked) < 52 + size // RANGE_BYTES_MAX


def test_equal_tails_cost_one_question():
    assert search(0, 1 << 30, None) == (None, [ByteRange((1 << 30) - 256 * 1024, 1 << 30)])


class Bytes:
    """A log held in memory, given out in chunks as a segmented one would."""

    def __init__(self, data: bytes, segment: int) -> None:
        self.data, self.segment = data, segment

    def chunk(self, physical_offset: int, bytes_max: int) -> memoryview | None:
        if physical_offset >= len(self.data):
            return None
        end = min(physical_offset + bytes_max, physical_offset - physical_offset % self.segment + self.segment)
        return memoryview(self.data)[physical_offset:end]


@given(st.binary(min_size=1, max_size=500), st.integers(1, 100), st.integers(1, 100))
def test_a_digest_does_not_depend_on_where_segments_end(data, one, other):
    whole = ByteRange(0, len(data))
    assert range_digest(Bytes(data, one), whole) == range_digest(Bytes(data, other), whole) is not None
    assert range_digest(Bytes(data, one), ByteRange(0, len(data) + 1)) is None


@pytest.mark.parametrize("text", [None, "", "5", "5-", "-5", "a-b", "7-7", "9-3", f"0-{RANGE_BYTES_MAX + 1}"])
def test_invalid_ranges_and_too_many_bytes_are_refused(text):
    with pytest.raises(ValueError, match="range"):
        parse_ranges(text)


def test_ranges_read_as_they_are_written():
    assert parse_ranges("0-10,10-20") == [ByteRange(0, 10), ByteRange(10, 20)]
    assert list(blocks(5, 25, 10)) == [ByteRange(5, 15), ByteRange(15, 25)]


@pytest.mark.parametrize(
    "text",
    [
        ",".join(f"{n}-{n + 1}" for n in range(1025)),
        "0-" + "9" * 5000,
        "0-\N{SUPERSCRIPT TWO}",
        "0-" + "9" * 30,
        "1-1",
        "",
    ],
    ids=["many", "long", "superscript", "huge", "empty", "none"],
)
def test_what_are_not_ranges_is_said_in_a_line(text):
    with pytest.raises(ValueError) as caught:
        parse_ranges(text)
    assert len(str(caught.value)) < 200


# -- the first different byte -------------------------------------------------------------------------


def search_bytes(one: bytes, other: bytes, begin: int, block_bytes: int) -> tuple[int | None, list[ByteRange]]:
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
    found, asked = search_bytes(data, bytes(other), begin, block_bytes)
    assert found == (place if begin <= place < len(data) else None)
    assert all(one.begin >= begin for one in asked)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 64))
def test_of_equal_logs_every_byte_is_asked_for_once(data, block_bytes):
    found, asked = search_bytes(data, data, 0, block_bytes)
    assert found is None
    assert [asked[0].begin, *(one.end for one in asked)][-1] == len(data)
    assert all(one.end == after.begin for one, after in itertools.pairwise(asked))
