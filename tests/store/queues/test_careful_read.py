"""Old records are checked when they are read: what is damaged is left out, everything else is served."""

from __future__ import annotations

import random

import pytest
from tests.store.store_at import draft, fill, open_store

from twinlog.store.log.append import Draft
from twinlog.store.log.checked_log import are_whole, is_whole
from twinlog.store.queues.read import ReadStatus
from twinlog.store.queues.unit_filters import PropertyTest, TagCodes
from twinlog.wire.java_text import tags_code
from twinlog.wire.message import decode_messages


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as first:
        fill(first, 60, queues=1)
    with open_store(tmp_path) as again:
        yield again


def served(store, **options):
    """Queue offset and body of each message that a consumer gets, from the first offset to the last."""
    found, at = [], 0
    while at < store.max_offset("TopicA", 0):
        result = store.read("TopicA", 0, at, count_max=16, log=store.log_in_memory(), **options)
        assert result.next_offset > at
        found += [(one.queue_offset, one.body) for buffer in result.buffers for one in decode_messages(buffer)]
        assert result.status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)
        at = result.next_offset
    return found


def all_but(number):
    return [(n, b"body %d" % n) for n in range(60) if n != number]


@pytest.mark.parametrize("options", [{}, {"accept": TagCodes({tags_code("tag")})}], ids=["all", "by tag"])
def test_a_flipped_bit_anywhere_in_a_record_hides_that_record_only(store, options):
    """Seen to fail with `is_sound` always true: flips of properties and heads are served."""
    chance = random.Random(12)
    place, size, _ = store.unit("TopicA", 0, 20)
    segment = store.commit_log.segment_at(place)
    for bit in chance.sample(range(8 * size), 60):
        at = place - segment.base + bit // 8
        segment.map[at] ^= 1 << bit % 8
        assert served(store, **options) == all_but(20), f"bit {bit}"
        assert store.message_at(place) is None
        assert store.query("TopicA", "key-20", 32, 0, 2**62).buffers == []
        segment.map[at] ^= 1 << bit % 8
        assert list(store.damaged) == [place]
    assert served(store, **options) == [(n, b"body %d" % n) for n in range(60)]


def test_a_damaged_length_does_not_hold_up_a_filter_on_properties(store):
    """Seen to fail with an IndexError at each read: the body's length, or a flag for IPv6, led out of the record."""
    place, _, _ = store.unit("TopicA", 0, 20)
    segment = store.commit_log.segment_at(place)
    wanted = PropertyTest(lambda text: b"TAGS\x01tag\x02" in text)
    for at, bit in ((39, 4), (84, 7), (84, 3), (85, 5), (86, 2), (87, 7)):
        segment.map[place - segment.base + at] ^= 1 << bit
        assert served(store, accept_record=wanted) == all_but(20), f"byte {at}"
        assert list(store.damaged) == [place]
        assert store.read("TopicA", 0, 20, count_max=1, log=store.log_in_memory(), accept_record=wanted).count == 1
        segment.map[place - segment.base + at] ^= 1 << bit


@pytest.fixture
def even_store(tmp_path):
    """Records of 256 bytes, so that a flipped bit in a unit leads from one record to another."""
    with open_store(tmp_path) as first:
        for number in range(60):
            body = b"body %d" % number
            assert first.append(Draft("TopicA", 0, body, b"P\x01%b\x02" % (b"p" * (136 - len(body))))).size == 256
        first.dispatch_pending()
    with open_store(tmp_path) as again:
        yield again


def test_a_flipped_bit_in_a_queue_unit_serves_no_other_message_in_its_place(even_store):
    """Seen to fail without the queue offsets in `next_of_queue`: another message is served twice."""
    store = even_store
    queue = store.queues.get("TopicA", 0)
    queue.write()
    for bit in range(8 * 12):  # place and size; the tags code decides about filters only
        path = queue.path_of(20)
        unit = bytearray(queue.read(20, 1))
        unit[bit // 8] ^= 1 << bit % 8
        queue.files.write(path, bytes(unit), 20 * 20, queue.file_bytes)
        store.damaged.clear()
        found, place = served(store), int.from_bytes(unit[:8], "big", signed=True)
        assert found in (all_but(20), all_but(None)), f"bit {bit}"
        assert list(store.damaged) == [place] or found == all_but(None), f"bit {bit}: nobody is told"
        unit[bit // 8] ^= 1 << bit % 8
        queue.files.write(path, bytes(unit), 20 * 20, queue.file_bytes)


def test_records_without_a_checksum_of_their_own_are_checked_by_their_bodies(tmp_path):
    with open_store(tmp_path, settings={"property_crc_enabled": False}) as store:
        places = fill(store, 3, queues=1)
        record = bytearray(store.record_at(places[1].physical_offset))
        assert is_whole(memoryview(record))
        window = memoryview(bytes(store.commit_log.slice(0, store.log_end)))
        assert are_whole(window) and not is_whole(window)
        record[92] ^= 1  # the body
        assert not is_whole(memoryview(record))


def test_what_this_process_has_just_written_is_not_checked(tmp_path):
    with open_store(tmp_path) as store:
        store.log_in_memory()
        fill(store, 5, queues=1)
        log = store.log_in_memory()
        assert store.read("TopicA", 0, 0, log=log).count == 5 and not log.is_old


def test_ipv6_hosts_and_empty_messages_are_whole(tmp_path):
    with open_store(tmp_path, settings={"property_crc_enabled": False}) as store:
        for one in (Draft("T", 0, b"", born_host=("::1", 1)), Draft("T", 0, b""), draft(1)):
            stored = store.append(one)
            assert is_whole(store.record_at(stored.physical_offset))


def test_a_repaired_record_is_examined_again_by_filters(tmp_path):
    with open_store(tmp_path) as store:
        places = fill(store, 60, queues=1)
        wanted = PropertyTest(lambda text: b"KEYS\x01key-59\x02" in text)
        segment = store.commit_log.segment_at(places[59].physical_offset)
        end = places[59].physical_offset + places[59].size - segment.base
        at = segment.map.find(b"key-59", 0, end)
        segment.map[at : at + 6] = b"key-5?"
        assert store.read("TopicA", 0, 0, accept_record=wanted).count == 0
        segment.map[at : at + 6] = b"key-59"
        store.note_repair(places[59].physical_offset)
        assert store.read("TopicA", 0, 0, accept_record=wanted).count == 1
