"""A read from a block that was examined before returns what the plain read returns."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.store_at import SEGMENT, fill, open_store

from twinlog.store import readable_store
from twinlog.store.log.append import Draft
from twinlog.store.queues import block_read
from twinlog.store.queues.read import ReadResult, block_key
from twinlog.store.queues.unit_filters import PropertyTest, TagCodes
from twinlog.wire.java_text import tags_code


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (block_read, readable_store):
        monkeypatch.setattr(module, "AHEAD_UNITS_MIN", 6)
        monkeypatch.setattr(module, "AHEAD_UNITS_MAX", 15)
    for name, units in {"_TAG_UNITS": 7, "_TAG_UNITS_MAX": 19, "_PROPERTY_UNITS": 9}.items():
        monkeypatch.setattr(block_read, name, units)
    monkeypatch.setattr("twinlog.store.queues.read.UNITS_MIN", 1)


def read_ready(store, queue_offset, count, accept=None, accept_record=None) -> ReadResult | None:
    queue, key = store.queues.get("T", 0), block_key(accept, accept_record)
    return store.read_ready(queue, queue_offset, count, key or "reader", ahead=key is None)


def seen(result: ReadResult) -> tuple:
    numbers = result.count, result.size, result.min_offset, result.max_offset, result.far_behind
    return result.status, result.next_offset, numbers, b"".join(result.buffers)


FILTERS = {
    "none": {},
    "tags": {"accept": TagCodes({tags_code("A"), tags_code("B")})},
    "properties": {"accept_record": PropertyTest(lambda text: b"A" in text)},
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.tuples(st.integers(9, 60), st.sampled_from([1, 90, 700]))),
        st.tuples(st.just("read"), st.integers(1, 9)),
        st.tuples(st.just("read"), st.integers(1, 9)),
        st.tuples(st.just("move"), st.integers(0, 60)),
        st.tuples(st.just("cut"), st.integers(1, 30)),
        st.tuples(st.just("expire"), st.integers(0, 1)),
        st.tuples(st.just("old"), st.integers(0, 20)),
    ),
    min_size=2,
    max_size=12,
)
LIMITS = st.fixed_dictionaries(
    {
        "bytes_in_memory_max": st.sampled_from([1_000, 3_000, 1 << 30]),
        "count_in_memory_max": st.sampled_from([4, 32]),
        "units_examined_max": st.sampled_from([3, 800]),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sampled_from(list(FILTERS)), LIMITS)
def test_a_reader_gets_what_the_plain_read_returns(tmp_path_factory, small_blocks, steps, kind, limits):
    """Seen to fail without the look at any of the limits, or at the age of records."""
    wanted, offset, places = FILTERS[kind], 0, [0]
    with open_store(tmp_path_factory.mktemp("ready")) as store:
        store.limits = dataclasses.replace(store.limits, **limits)
        for step, value in [("send", (60, 90)), *steps]:
            if step == "send":
                count, size_max = value
                for number in range(count):
                    properties = f"TAGS\x01{'ABCD'[number // 2 % 4]}\x02".encode()
                    one = Draft("T", number % 2, b"b" * (number * 37 % size_max), properties)
                    places.append(store.append(one).physical_offset)
                store.dispatch_pending()
            elif step == "move":
                offset = value
            elif step == "cut":
                del places[len(places) - value :]
                store.truncate(max([*places[-1:], store.log_start]))
            elif step == "expire":
                if len(store.commit_log.segments) > 1:
                    store.commit_log.drop_oldest()
                if value:
                    store.queues.correct_min(store.log_start)
            elif step == "old":
                store.opened_end = value * SEGMENT // 4
            else:
                for _ in range(5):
                    log = store.log_in_memory()
                    plain = store.read("T", 0, offset, count_max=value, log=log, **wanted)
                    ready = read_ready(store, offset, value, **wanted)
                    assert ready is None or (seen(ready) == seen(plain) and not log.is_old)
                    offset = plain.next_offset


@pytest.mark.parametrize("kind", FILTERS)
def test_a_backlog_is_read_from_blocks(tmp_path, small_blocks, kind):
    wanted, offset, found, missed = FILTERS[kind], 0, 0, 0
    with open_store(tmp_path) as store:
        for number in range(160):
            store.append(Draft("T", number % 2, b"b", f"TAGS\x01{'ABCD'[number // 2 % 4]}\x02".encode()))
        store.dispatch_pending()
        while offset < 75:
            ready = read_ready(store, offset, 1, **wanted)
            found, missed = found + (ready is not None), missed + (ready is None)
            offset = (ready or store.read("T", 0, offset, count_max=1, **wanted)).next_offset
    assert found > missed


def test_readers_do_not_take_each_others_blocks(tmp_path, small_blocks):
    with open_store(tmp_path) as store:
        fill(store, 60, queues=1)
        queue = store.queues.get("TopicA", 0)
        for reader, offset in [("a", 3), ("b", 20), ("a", 4), ("b", 21)]:
            assert store.read_ready(queue, offset, 1, reader, ahead=True).next_offset == offset + 1
        assert {store.examined.get(queue, reader).begin for reader in "ab"} == {3, 20}


def test_a_block_in_two_segments_is_read_up_to_the_first_ones_end(tmp_path, small_blocks):
    with open_store(tmp_path) as store:
        places = fill(store, 200, queues=1)
        queue = store.queues.get("TopicA", 0)
        before = next(number for number, place in enumerate(places) if place.physical_offset >= SEGMENT)
        found = [store.read_ready(queue, at, 2, "reader", ahead=True) for at in range(before - 3, before + 1)]
        assert [one is not None for one in found] == [True, True, False, False]
        assert seen(found[1]) == seen(store.read("TopicA", 0, before - 2, count_max=2))


def test_a_lost_message_is_not_answered_with_another_one_twice(tmp_path, small_blocks):
    """Its unit points at its neighbour's record: whether that is left out is decided by the plain read."""
    with open_store(tmp_path) as store:
        fill(store, 20, queues=1)
        queue = store.queues.get("TopicA", 0)
        queue.tail[5 * 20 : 6 * 20] = queue.tail[6 * 20 : 7 * 20]
        assert store.read_ready(queue, 4, 3, "reader", ahead=True) is None
