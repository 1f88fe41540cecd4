"""The checksum of a whole record: written as Java writes it, found where it is, also when it is damaged itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.store_at import NOW, draft, open_store

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.log.append import Draft, PutStatus
from twinlog.store.log.checked_log import is_whole
from twinlog.store.log.record_crc import (
    CRC_NAME,
    crc_properties,
    crc_property,
    crc_rows,
    ends_in_crc,
    for_crc,
    has_valid_crc,
    without_crc,
)
from twinlog.store.scan.scan import scan
from twinlog.store.scan.small_scan import scan_small
from twinlog.store.scan.stop import StopReason
from twinlog.wire.checksum import crc32
from twinlog.wire.message import decode_message

DELAYS = DelayLevels("1s 2s")
STALE = b"__CRC32#\x010123456789\x02"


def test_digits_are_as_java_writes_them():
    assert crc_rows(crc_properties(np.array([648969127])))[1].tolist() == [648969127]
    assert crc_properties(np.array([648969127])).tobytes() == b"__CRC32#\x017219698460\x02"


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=9))
def test_many_checksums_at_once_are_those_of_each(records):
    rows = crc_properties(np.array([crc32(record) for record in records], np.int64))
    assert [row.tobytes() for row in rows] == [crc_property(record) for record in records]
    has_crc, crcs = crc_rows(rows)
    assert has_crc.all() and crcs.tolist() == [crc32(record) & 0x7FFFFFFF for record in records]
    assert all(has_valid_crc(record + row.tobytes()) for record, row in zip(records, rows, strict=True))


@given(
    st.binary(min_size=20, max_size=60) | st.just(b"TAGS\x01a\x02" + STALE), st.lists(st.integers(0, 479), max_size=3)
)
def test_one_record_and_many_are_recognised_alike(properties, flips):
    flipped = bytearray(properties)
    for bit in flips:
        flipped[bit // 8 % len(flipped)] ^= 1 << bit % 8
    rows = np.frombuffer(flipped[-20:], np.uint8).reshape(1, 20)
    assert crc_rows(rows)[0].tolist() == [ends_in_crc(bytes(flipped))]


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        (b"", b""),
        (b"a\x01b", b"a\x01b\x02"),
        (STALE, b""),
        (b"a\x01b\x02" + STALE + b"c\x01d", b"a\x01b\x02c\x01d\x02"),
    ],
)
def test_the_checksum_of_an_older_record_is_dropped(given_text, kept):
    assert for_crc(given_text) == kept
    assert without_crc(kept) == kept


@given(st.lists(st.sampled_from([b"a\x01b", STALE[:-1], STALE[:-2], b"x" + STALE[:-1], b"#", b""]), max_size=5))
def test_a_checksum_is_dropped_wherever_it_stands(pairs):
    text = b"\x02".join(pairs)
    kept = b"\x02".join(pair for pair in text.split(b"\x02") if not pair.startswith(CRC_NAME))
    assert without_crc(text) == kept


def test_every_flipped_bit_of_a_record_is_found_by_both_scans(tmp_path):
    """Seen to fail with the record's checksum left out of `_first_bad_crc` or `scan_small`: 1207 of 1480 pass."""
    with open_store(tmp_path) as store:
        store.append(draft(1))
        store.append(Draft("TopicA", 0, b"second", b""))
        data = bytes(store.commit_log.slice(0, store.log_end))
    size = int.from_bytes(data[:4], "big")
    for bit in range(8 * size):
        torn = bytearray(data)
        torn[bit // 8] ^= 1 << bit % 8
        (batch,) = scan(bytes(torn), 0, len(torn), 0)
        assert len(batch) == 0 and batch.stop is not None, bit
        found, at, _ = scan_small(memoryview(torn), 0, len(torn), 0, DELAYS)
        assert (found, at) == ([], 0), bit


def test_records_with_and_without_a_checksum_follow_one_another(tmp_path):
    for crc in (False, True, False):
        with open_store(tmp_path, settings={"property_crc_enabled": crc}) as store:
            for number in range(5):
                assert store.append(draft(number)).ok
            store.dispatch_pending()
            log = bytes(store.commit_log.slice(0, store.log_end))
    (batch,) = scan(log, 0, len(log), 0)
    assert (len(batch), batch.stop.reason) == (15, StopReason.END)
    (batch,) = scan(log, 0, len(log), 0, check_record_crc=True)
    assert (len(batch), batch.stop.reason) == (0, StopReason.RECORD_CRC)
    found, end, _ = scan_small(memoryview(log), 0, len(log), 0, DELAYS)
    assert (len(found), end, found[-1].store_timestamp) == (15, len(log), NOW)


@pytest.mark.parametrize("forced", [False, True])
def test_properties_up_to_javas_limit_are_stored_whether_a_checksum_fits_or_not(tmp_path, forced):
    """Seen to fail: from 32,748 bytes on, what was accepted before records had a checksum was refused."""
    settings = {"segment_bytes": 1 << 19, "property_crc_forced": forced}
    with open_store(tmp_path, settings=settings) as store:
        for length, end, has_crc in (
            (32_747, b"\x02", True),
            (32_746, b"v", True),
            (32_747, b"v", False),
            (32_748, b"\x02", False),
            (32_767, b"\x02", False),
            (32_767, b"\x02" + STALE, True),  # the message had one already
        ):
            stored = store.append(Draft("TopicA", 0, b"body", b"name\x01".ljust(length - len(end), b"v") + end))
            if forced and not has_crc:
                assert stored.status is PutStatus.PROPERTIES_SIZE_EXCEEDED
                continue
            assert stored.ok
            record = store.record_at(stored.physical_offset)
            assert is_whole(record) and len(record) == stored.size
            assert has_valid_crc(record) == has_crc
            assert decode_message(record).properties["name"].startswith("vvv")
        assert store.append(Draft("TopicA", 0, b"", b"p" * 32_768)).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
        hostile = b"name\x01".ljust(32_746, b"v") + b"\x02__CRC32!\x010123456789\x02"
        assert store.append(Draft("TopicA", 0, b"", hostile)).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    with open_store(tmp_path, settings=settings) as store:
        assert store.report.damages == []
