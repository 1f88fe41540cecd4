"""Reading through a filter in blocks returns what examining one unit after the other returns."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.queues.test_read import Store

from twinlog.broker.pulls.filters.sql92 import compile_sql92
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.queues import block_read, examined, read, unit_filters
from twinlog.store.queues.consume_queue_ext import ADDRESS_MAX, ExtUnit
from twinlog.store.queues.examined import ExaminedBlocks
from twinlog.store.queues.read import ReadLimits, ReadStatus
from twinlog.store.queues.unit_filters import CODES_AT_ONCE_MAX, ExtTest, PropertyTest, TagCodes
from twinlog.wire.message import Message, encode_message
from twinlog.wire.record_layout import record_properties

LIMITS = ReadLimits(memory_bytes=1 << 40)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture(autouse=True)
def blocks_of_any_size(monkeypatch):
    monkeypatch.setattr(read, "UNITS_MIN", 1)


@pytest.fixture
def one_by_one(monkeypatch):
    """Counts the reads that were not done in blocks."""
    calls, select = [], read._select
    monkeypatch.setattr(read, "_select", lambda *args: calls.append(1) or select(*args))
    return calls


def put_record(store: Store, message: Message, tags_code: int = 0) -> None:
    record, at = encode_message(message), store.log.log_end
    store.log.data += record
    queue_offset = store.queues.max_offset("SimpleCQ", 0)
    store.queues.dispatch([DispatchRequest("SimpleCQ", 0, at, len(record), tags_code, 0, queue_offset)])


def test_units_of_other_tags_are_passed_without_a_look(store, one_by_one):
    for number in range(2_000):
        store.send(tags_code=number % 10)
    result = store.read(5, accept=TagCodes({3}))
    assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 32, 324)
    assert len(result.buffers) == 32
    result = store.read(5, accept=TagCodes({77}))
    assert (result.status, result.count, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 0, 805)
    assert not one_by_one


def test_few_units_are_examined_one_by_one(store, one_by_one, monkeypatch):
    monkeypatch.setattr(read, "UNITS_MIN", block_read.UNITS_MIN)
    for _ in range(block_read.UNITS_MIN):
        store.send(tags_code=1)
    assert store.read(accept=TagCodes({1})).count == block_read.UNITS_MIN
    assert not one_by_one
    assert store.read(1, accept=TagCodes({1})).count == block_read.UNITS_MIN - 1
    assert one_by_one


@pytest.mark.parametrize("count", [CODES_AT_ONCE_MAX, CODES_AT_ONCE_MAX + 1])
def test_any_number_of_codes_is_looked_for(store, count):
    for number in range(60):
        store.send(tags_code=number)
    assert store.read(accept=TagCodes(range(count))).count == count


def test_a_code_outside_64_bits_is_no_units_code(store):
    store.send(tags_code=-1)
    assert store.read(accept=TagCodes({2**64 - 1, -1})).count == 1
    assert store.read(accept=TagCodes({2**64 - 1})).count == 0


def test_a_unit_whose_filter_data_is_gone_passes_a_filter_on_tags(store, one_by_one):
    for code in (7, ADDRESS_MAX, 8):
        store.send(tags_code=code)
    assert store.read(accept=TagCodes({8})).count == 2
    assert one_by_one


def test_a_filter_on_a_bitmap_leaves_a_queue_without_bitmaps_to_the_properties(store, one_by_one):
    for number in range(40):
        put_record(store, Message(topic="SimpleCQ", body=b"x", properties={"n": str(number % 4)}))
    wanted = PropertyTest(lambda text: b"n\x013" in text)
    result = store.read(accept=ExtTest(lambda ext: False), accept_record=wanted)
    assert (result.count, result.next_offset) == (10, 40)
    assert not one_by_one


def test_a_bitmap_decides_on_units_that_have_one():
    wanted = ExtTest(lambda ext: bool(ext.bitmap[0]))
    assert wanted(None, None)
    assert wanted(5, ExtUnit(5, 0, b"\x01"))
    assert not wanted(5, ExtUnit(5, 0, b"\x00"))


@pytest.mark.parametrize("topic", ["T", "T" * 200])
@pytest.mark.parametrize(("born", "stored"), [("127.0.0.1", "127.0.0.1"), ("::1", "127.0.0.1"), ("127.0.0.1", "::1")])
def test_the_properties_of_every_kind_of_record_are_found(store, topic, born, stored):
    for number in range(3):
        message = Message(topic=topic, body=b"b" * number, properties={"n": str(number), "m": "x" * number})
        message.born_host, message.store_host = (born, 1), (stored, 2)
        put_record(store, message)
    seen = []
    store.read(accept_record=PropertyTest(lambda text: seen.append(text) or False))
    plain = []
    store.read(accept_record=lambda record: plain.append(bytes(record_properties(record))) or False)
    assert seen == plain
    assert len(seen) == 3


def test_records_that_retention_took_are_left_to_the_plain_read(store, one_by_one):
    for number in range(40):
        store.send(tags_code=number % 2)
    store.log.log_start = 450
    result = store.read(accept=TagCodes({1}))
    assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 18, 40)
    assert one_by_one


def test_a_record_that_is_not_whole_in_the_log_is_left_to_the_plain_read(store, one_by_one):
    for _ in range(30):
        store.send(tags_code=1)
    del store.log.data[2_950:]
    assert store.read(accept=TagCodes({1})).count == 29
    assert one_by_one


@pytest.mark.parametrize("last_code", [1, 2], ids=["wanted", "refused"])
def test_a_record_that_just_fits_does_not_end_the_batch(store, one_by_one, last_code):
    for size, code in [(100, 1), (200, last_code), (900, 2)]:
        store.send(size, tags_code=code)
    limits = ReadLimits(memory_bytes=1 << 40, bytes_in_memory_max=300)
    result = store.read(accept=TagCodes({1}), limits=limits)
    assert result.next_offset == 2
    assert result.size == (300 if last_code == 1 else 100)
    assert not one_by_one


def test_units_of_deleted_records_that_the_filter_refuses_are_reported_as_deleted(store, one_by_one):
    for code in (1, 1, 2, 2):
        store.send(tags_code=code)
    store.log.log_start = 150
    result = store.read(accept=TagCodes({3}))
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 4)
    assert one_by_one


def test_records_further_back_than_memory_have_the_limits_of_the_disk(store, one_by_one):
    for number in range(40):
        store.send(tags_code=number % 2)
    result = store.read(accept=TagCodes({1}), limits=ReadLimits(memory_bytes=2_000))
    assert (result.count, result.next_offset, result.far_behind) == (8, 16, True)
    assert one_by_one


sends = st.lists(st.tuples(st.integers(0, 1), st.integers(91, 400), st.integers(0, 3), st.integers(0, 2)), max_size=120)


@settings(max_examples=200, deadline=None)
@given(
    sends,
    st.integers(0, 20),
    st.integers(1, 40),
    st.sampled_from([2_000, 1 << 30]),
    st.sampled_from([700, 2_000, 1 << 30]),
    st.sets(st.integers(0, 4), max_size=3),
    st.data(),
)
def test_blocks_select_what_the_plain_loop_selects(
    tmp_path_factory, messages, offset, count_max, memory, bytes_max, codes, data
):
    store = Store(tmp_path_factory.mktemp("store"))
    for queue_id, size, code, lost in messages:
        body = b"b" * size
        record, at = encode_message(Message(topic="T", body=body, properties={"n": str(code)})), store.log.log_end
        store.log.data += record
        # A lost record leaves a place that points at the next one.
        queue_offset = store.queues.max_offset("SimpleCQ", queue_id) + (1 if lost == 2 else 0)
        store.queues.dispatch([DispatchRequest("SimpleCQ", queue_id, at, len(record), code, 0, queue_offset)])
    if data.draw(st.booleans()):
        store.queues.write_pending()
    if data.draw(st.booleans()):
        store.log.log_start = data.draw(st.integers(0, store.log.log_end))
    limits = ReadLimits(
        memory_bytes=memory,
        bytes_in_memory_max=bytes_max,
        bytes_on_disk_max=600,
        units_examined_max=data.draw(st.sampled_from([10, 50, 800])),
    )
    more = {"count_max": count_max, "limits": limits}
    assert store.read(offset, accept=TagCodes(codes), **more) == store.read(
        offset, accept=lambda code, ext: code is None or code in codes, **more
    )
    wanted = PropertyTest(lambda text: int(text[2:3]) in codes)
    one_by_one = store.read(offset, accept_record=lambda record: wanted(record), **more)
    assert store.read(offset, accept_record=wanted, **more) == one_by_one
    words = ", ".join(f"'{code}'" for code in codes or [9])
    with_a_look = PropertyTest(wanted.matches, compile_sql92(f"n IN ({words})").look_at)
    assert store.read(offset, accept_record=with_a_look, **more) == one_by_one


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks end in the middle of reads, and reads in the middle of blocks."""
    for name, units in {"_TAG_UNITS": 3, "_TAG_UNITS_MAX": 11, "_TABLE_UNITS": 4, "_TABLE_UNITS_MAX": 13}.items():
        monkeypatch.setattr(block_read, name, units)
    monkeypatch.setattr(block_read, "_PROPERTY_UNITS", 5)
    monkeypatch.setattr(unit_filters, "EXACT_LOOKS_MAX", 3)


def put_numbered(store: Store, code: int, size: int) -> None:
    put_record(store, Message(topic="SimpleCQ", body=b"b" * size, properties={"n": str(code)}), code)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), max_size=20)),
        st.tuples(st.just("read"), st.tuples(st.integers(1, 9), st.sampled_from([700, 2_000, 1 << 30]))),
        st.tuples(st.just("cut"), st.integers(0, 30)),
        st.tuples(st.just("expire"), st.integers(0, 30)),
        st.tuples(st.just("move"), st.integers(0, 30)),
    ),
    min_size=3,
    max_size=30,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sets(st.integers(0, 4), min_size=1, max_size=2), st.sampled_from(["tags", "properties", "look"]))
def test_a_reader_that_goes_on_gets_what_the_plain_loop_selects(tmp_path_factory, small_blocks, steps, codes, kind):
    """Seen to fail for the last wanted message at the end of a block."""
    store, kept, offset = Store(tmp_path_factory.mktemp("store")), ExaminedBlocks(), 0
    numbers = PropertyTest(lambda text: int(text[2:3]) in codes)
    words = ", ".join(f"'{code}'" for code in codes)
    fast, plain = {
        "tags": ({"accept": TagCodes(codes)}, {"accept": lambda code, ext: code is None or code in codes}),
        "properties": ({"accept_record": numbers}, {"accept_record": lambda record: numbers(record)}),
        "look": (
            {"accept_record": PropertyTest(numbers.matches, compile_sql92(f"n IN ({words})").look_at)},
            {"accept_record": lambda record: numbers(record)},
        ),
    }[kind]
    for step, value in steps:
        queue = store.queues.get("SimpleCQ", 0)
        if step == "send":
            for code, size in value:
                put_numbered(store, code, size)
        elif queue is None:
            continue
        elif step == "read":
            count_max, bytes_max = value
            limits = ReadLimits(memory_bytes=1 << 40, bytes_in_memory_max=bytes_max, units_examined_max=17)
            found = store.read(offset, count_max=count_max, limits=limits, kept=kept, **fast)
            assert found == store.read(offset, count_max=count_max, limits=limits, **plain)
            offset = found.next_offset
        elif step == "cut":  # other messages take the places of those that were cut off
            end = queue.physical_offset(min(value, queue.end - 1)) if queue.end > queue.min else store.log.log_end
            del store.log.data[end:]
            store.queues.truncate_after(end)
        elif step == "expire" and queue.min + value < queue.end:
            store.log.log_start = queue.physical_offset(queue.min + value)
            store.queues.correct_min(store.log.log_start)
        else:
            offset = value


def test_what_a_read_leaves_of_a_block_is_not_examined_again(store, monkeypatch):
    for number in range(900):
        store.send(tags_code=number % 2)
    examined, accepted = [], TagCodes.accepted
    monkeypatch.setattr(
        TagCodes, "accepted", lambda self, block: examined.append(len(block[0])) or accepted(self, block)
    )
    kept, offset = ExaminedBlocks(), 0
    for _ in range(14):
        offset = store.read(offset, accept=TagCodes({1}), kept=kept).next_offset
    assert offset == 896
    assert examined == [512, 388]


def test_units_in_the_place_of_those_that_were_cut_off_are_examined(store):
    for _ in range(40):
        store.send(tags_code=1)
    kept, wanted = ExaminedBlocks(), TagCodes({1})
    assert store.read(accept=wanted, count_max=8, kept=kept).next_offset == 8
    del store.log.data[1_000:]
    store.queues.truncate_after(1_000)
    for _ in range(40):
        store.send(tags_code=2)
    found = store.read(8, accept=wanted, kept=kept)
    assert (found.count, found.next_offset) == (2, 50)


def test_records_that_were_written_again_are_examined_again(store):
    for _ in range(40):
        put_numbered(store, 1, 10)
    kept, wanted = ExaminedBlocks(), PropertyTest(lambda text: text == b"n\x012\x02")
    assert store.read(accept_record=wanted, kept=kept).count == 0
    store.log.data[:] = store.log.data.replace(b"n\x011\x02", b"n\x012\x02")
    assert store.read(accept_record=wanted, kept=kept).count == 0
    kept.clear()
    assert store.read(accept_record=wanted, kept=kept).count == 32


def test_blocks_are_dropped_when_there_are_too_many(store, monkeypatch):
    monkeypatch.setattr(examined, "_UNITS_MAX", 100)
    for _ in range(64):
        store.send(tags_code=1)
    kept, queue = ExaminedBlocks(), store.queues.get("SimpleCQ", 0)
    for wanted in (TagCodes({1}), TagCodes({1, 2})):
        assert store.read(accept=wanted, kept=kept).count == 32
    assert kept.get(queue, TagCodes({1}).key) is None
    assert kept.get(queue, TagCodes({1, 2}).key) is not None
