"""What the headers of one consumer's pulls of one queue have in common, byte for byte.

A consumer sends the same header again and again. Only three numbers differ, in whatever order its client writes them:

    {"code":11,"extFields":{...,"commitOffset":" 96 ",...,"queueOffset":" 128 ",...},...,"opaque": 17 ,...}
    |----------------- text -------------------|  |-------- text -------|   |------- text -------|    |text|

When all other bytes of a header equal those of one that was decoded, its meaning is the same, and it is not decoded
again.
"""

from __future__ import annotations

from typing import NamedTuple

_COMMIT, _OFFSET, _OPAQUE = b'"commitOffset":"', b'"queueOffset":"', b'"opaque":'
_COMMIT_LENGTH, _OFFSET_LENGTH, _OPAQUE_LENGTH = len(_COMMIT), len(_OFFSET), len(_OPAQUE)
_DIGITS_MAX = 18  # always fit 64 bits
_OPAQUE_DIGITS_MAX = 9  # and 32 bits


class Numbers(NamedTuple):
    """A header without its numbers, and these."""

    texts: tuple[bytes, bytes, bytes, bytes]
    commit_offset: int
    queue_offset: int
    opaque: int


def take_numbers(data: bytes, begin: int, end: int) -> Numbers | None:
    """The parts of the JSON header data[begin:end]; None when a number is missing or written in another way."""
    find = data.find
    commit_at = find(_COMMIT, begin, end) + _COMMIT_LENGTH
    offset_at = find(_OFFSET, begin, end) + _OFFSET_LENGTH
    opaque_at = find(_OPAQUE, begin, end) + _OPAQUE_LENGTH
    if commit_at < _COMMIT_LENGTH or offset_at < _OFFSET_LENGTH or opaque_at < _OPAQUE_LENGTH:
        return None
    commit_end, offset_end = find(b'"', commit_at, end), find(b'"', offset_at, end)
    opaque_end = find(b",", opaque_at, end)
    commit, offset, opaque = data[commit_at:commit_end], data[offset_at:offset_end], data[opaque_at:opaque_end]
    if not (
        commit.isdigit()
        and offset.isdigit()
        and opaque.isdigit()
        and len(commit) <= _DIGITS_MAX
        and len(offset) <= _DIGITS_MAX
        and len(opaque) <= _OPAQUE_DIGITS_MAX
        and (opaque[0] != 0x30 or len(opaque) == 1)
    ):
        return None
    if commit_at < offset_at < opaque_at:  # as Java writes them
        texts = data[begin:commit_at], data[commit_end:offset_at], data[offset_end:opaque_at], data[opaque_end:end]
    else:
        spans = sorted(((commit_at, commit_end), (offset_at, offset_end), (opaque_at, opaque_end)))
        (_, first), (second_at, second), (third_at, third) = spans
        texts = data[begin : spans[0][0]], data[first:second_at], data[second:third_at], data[third:end]
    return Numbers(texts, int(commit), int(offset), int(opaque))


def is_plain(header: bytes) -> bool:
    """Whether the numbers that `take_numbers` finds are those that a decoder finds.

    Each name must be there once, and no name may be written with escapes.
    """
    return b"\\" not in header and all(
        header.count(name) == 1 for name in (b'"commitOffset"', b'"queueOffset"', b'"opaque"')
    )
