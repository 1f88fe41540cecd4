"""Metadata files have a checksum, which finds every flipped bit."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.base.json_checksum import check_json, is_changed, with_checksum

SAVED_NS = 1_763_308_800_123_456_789
values = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4)


@given(values, st.integers(1, 9), st.sampled_from(["", "\n"]))
def test_the_checksum_is_a_member_more_however_the_content_is_cut(content, step, end):
    data = (json.dumps(content, separators=(",", ":")) + end).encode()
    cut = [data[at : at + step] for at in range(0, len(data), step)]
    written = b"".join(with_checksum(cut, SAVED_NS))
    assert check_json(written)
    found = json.loads(written)
    assert found.pop("twinlogCrc32").endswith(f" {SAVED_NS}")
    assert found == content


def test_every_flipped_bit_is_found():
    """Seen to fail with `check_json` doing nothing: many flips leave JSON with other names and numbers."""
    written = b"".join(with_checksum([b'{"offsetTable":{"T@G":{"0":5,"1":77}}', b"}"], SAVED_NS))
    for bit in range(8 * len(written)):
        flipped = bytearray(written)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            if not check_json(bytes(flipped)):
                json.loads(flipped)


def test_a_file_without_the_member_is_not_checked():
    assert not check_json(b'{"a":1}') and not check_json(b"")
    assert b"".join(with_checksum([b"[1]"], SAVED_NS)) == b"[1]"


def test_a_file_is_damaged_if_its_time_is_that_of_its_save_and_changed_otherwise():
    """Seen to fail while each file that differs from its checksum was replaced by its backup."""
    written = b"".join(with_checksum([b'{"perm":6,"readQueueNums":4}'], SAVED_NS))
    edited = written.replace(b":4", b":8")
    laid_out = json.dumps(json.loads(edited), indent=2).encode() + b"\n"
    assert not is_changed(written, SAVED_NS) and not is_changed(written, SAVED_NS + 1)
    for data in (edited, edited + b"\n", laid_out):
        assert is_changed(data, SAVED_NS + 1)
        for step in (1, 1_000, 1_000_000_000):  # what an archive or a file system keeps of it
            with pytest.raises(ValueError, match="remove the member"):
                is_changed(data, SAVED_NS // step * step)
    for unsure in (edited[:-12], b'{"perm":7,"twinlogCrc32":"00000000"}'):  # torn, or by a version without the time
        with pytest.raises(ValueError, match="remove the member"):
            is_changed(unsure, SAVED_NS + 1)
    assert not is_changed(b'{"perm":7}', SAVED_NS + 1)


def test_every_flipped_bit_is_damage_and_no_change():
    """Seen to fail while a flip in the time inside was taken for a change by hand at another time."""
    written = b"".join(with_checksum([b'{"offsetTable":{"T@G":{"0":5,"1":77}}', b"}"], SAVED_NS))
    for bit in range(8 * len(written)):
        flipped = bytearray(written)
        flipped[bit // 8] ^= 1 << bit % 8
        for step in (1, 1_000, 1_000_000_000):
            with pytest.raises(ValueError):
                is_changed(bytes(flipped), SAVED_NS // step * step)
                json.loads(flipped)


def test_a_checksum_without_the_time_is_compared_as_well():
    assert check_json(b'{"a":1,"twinlogCrc32":"%08x"}' % zlib.crc32(b'{"a":1'))
