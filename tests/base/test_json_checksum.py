"""Metadata files have a checksum, which finds every flipped bit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.base.json_checksum import check_json, with_checksum

values = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4)


@given(values, st.integers(1, 9), st.sampled_from(["", "\n"]))
def test_the_checksum_is_a_member_more_however_the_content_is_cut(content, step, end):
    data = (json.dumps(content, separators=(",", ":")) + end).encode()
    cut = [data[at : at + step] for at in range(0, len(data), step)]
    written = b"".join(with_checksum(cut))
    assert check_json(written)
    found = json.loads(written)
    assert len(found.pop("twinlogCrc32")) == 8
    assert found == content


def test_every_flipped_bit_is_found():
    """Seen to fail with `check_json` doing nothing: 244 of 512 flips leave valid JSON, with other names and numbers."""
    written = b"".join(with_checksum([b'{"offsetTable":{"T@G":{"0":5,"1":77}}', b"}"]))
    for bit in range(8 * len(written)):
        flipped = bytearray(written)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            if not check_json(bytes(flipped)):
                json.loads(flipped)


def test_a_file_without_the_member_is_not_checked():
    assert not check_json(b'{"a":1}') and not check_json(b"")
    assert b"".join(with_checksum([b"[1]"])) == b"[1]"
