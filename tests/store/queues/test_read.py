import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.queues import read
from twinlog.store.queues.queue_table import QueueTable
from twinlog.store.queues.read import ReadLimits, ReadStatus, read_queue

LIMITS = ReadLimits(memory_bytes=1 << 40)


class MemoryLog:
    """A commit log in memory, with records that hold nothing but their size, flag and store time."""

    def __init__(self):
        self.data = bytearray()
        self.log_start = 0

    @property
    def log_end(self):
        return len(self.data)

    def slice(self, physical_offset, size):
        if physical_offset < self.log_start or physical_offset + size > len(self.data):
            return None
        return memoryview(bytes(self.data))[physical_offset : physical_offset + size]

    window = slice

    def need(self, offsets, sizes):
        pass

    def append(self, size, store_timestamp, sys_flag=0):
        record = bytearray(size)
        at = 68 if sys_flag & 0x10 else 56
        struct.pack_into(">i", record, 0, size)
        struct.pack_into(">i", record, 36, sys_flag)
        struct.pack_into(">q", record, at, store_timestamp)
        self.data += record
        return len(self.data) - size


class Store:
    def __init__(self, path):
        self.log = MemoryLog()
        self.queues = QueueTable(path, queue_file_bytes=400, topic_kind=lambda topic: topic)

    def send(self, size=100, *, queue_id=0, time=0, tags_code=0, topic="SimpleCQ", batch_size=1, sys_flag=0):
        physical_offset = self.log.append(size, time, sys_flag)
        queue_offset = self.queues.max_offset(topic, queue_id)
        self.queues.dispatch(
            [
                DispatchRequest(
                    topic, queue_id, physical_offset, size, tags_code, time, queue_offset, batch_size=batch_size
                )
            ]
        )

    def read(self, queue_offset=0, *, queue_id=0, topic="SimpleCQ", count_max=32, limits=LIMITS, **more):
        queue = self.queues.get(topic, queue_id)
        return read_queue(queue, self.log, queue_offset, count_max=count_max, limits=limits, **more)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_neighbouring_records_come_as_one_window(store):
    for _ in range(5):
        store.send()
    result = store.read(1)
    assert (result.status, result.count, result.next_offset, result.size) == (ReadStatus.FOUND, 4, 5, 400)
    assert (result.min_offset, result.max_offset, result.far_behind) == (0, 5, False)
    assert [bytes(buffer) for buffer in result.buffers] == [bytes(store.log.data[100:500])]


def test_records_of_other_queues_are_left_out(store):
    for number in range(6):
        store.send(queue_id=number % 2, size=100 + number)
    result = store.read(queue_id=1)
    assert [len(buffer) for buffer in result.buffers] == [101, 103, 105]


@pytest.mark.parametrize(
    ("queue_offset", "status", "next_offset"),
    [
        (1, ReadStatus.OFFSET_TOO_SMALL, 2),
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
    ],
)
def test_an_offset_outside_the_queue_is_answered_with_a_better_one(store, queue_offset, status, next_offset):
    for _ in range(5):
        store.send()
    store.log.log_start = 200
    store.queues.correct_min(200)
    result = store.read(queue_offset)
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (status, next_offset, 2, 5)
    assert store.read(queue_offset, correct_offset=False).next_offset == queue_offset


def test_an_unknown_queue_is_an_empty_one(store):
    result = store.read(7)
    assert (result.status, result.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_a_batch_ends_at_the_count_asked_for(store):
    for _ in range(50):
        store.send()
    assert store.read(count_max=3).count == 3
    assert store.read(count_max=100).count == 32


def test_a_batch_ends_before_its_bytes_exceed_the_limit_but_one_message_always_fits(store):
    for size in (300_000, 200_000, 62_144, 100):
        store.send(size)
    assert (store.read(0).count, store.read(0).next_offset) == (1, 1)
    assert store.read(1).count == 2
    assert store.read(1, bytes_max=1000).count == 1


def test_data_beyond_memory_comes_in_smaller_batches_marked_far_behind(store):
    for _ in range(60):
        store.send(1000)
    limits = ReadLimits(memory_bytes=10_000)
    result = store.read(limits=limits)
    assert (result.count, result.far_behind) == (8, True)
    assert store.read(50, limits=limits).far_behind is False
    big = ReadLimits(memory_bytes=10_000, bytes_on_disk_max=3_500)
    assert store.read(limits=big).count == 3


def test_refused_units_move_the_offset_on(store):
    for number in range(10):
        store.send(tags_code=number % 3)
    result = store.read(accept=lambda code, ext: code == 1)
    assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 3, 10)
    result = store.read(accept=lambda code, ext: False)
    assert (result.status, result.count, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 0, 10)


def test_at_most_800_units_are_examined(store):
    for _ in range(900):
        store.send()
    assert store.read(accept=lambda code, ext: False).next_offset == 800
    assert store.read(accept=lambda code, ext: False, count_max=850).next_offset == 850


def test_records_can_be_refused_by_their_bytes(store):
    for number in range(6):
        store.send(time=number)
    result = store.read(accept_record=lambda record: record[63] % 2 == 1)
    assert [buffer[63] for buffer in result.buffers] == [1, 3, 5]


def test_removed_records_are_skipped(store):
    for _ in range(5):
        store.send()
    store.log.log_start = 300  # retention has been here, min offsets are not corrected yet
    result = store.read(0)
    assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 2, 5)
    store.log.log_start = 500
    assert (store.read(0).status, store.read(0).next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 5)


def test_units_that_point_beyond_the_log_are_not_returned(store):
    for _ in range(5):
        store.send()
    del store.log.data[350:]
    result = store.read(0)
    assert (result.status, result.count, result.size) == (ReadStatus.FOUND, 3, 300)


def test_an_inner_batch_is_read_whole_from_any_of_its_offsets(store):
    for number in (4, 2, 1):
        store.send(topic="BatchCQ", batch_size=number, size=100 + number)
    for queue_offset in range(4):
        result = store.read(queue_offset, topic="BatchCQ")
        assert (result.count, result.next_offset, result.max_offset) == (7, 7, 7)
    assert [len(buffer) for buffer in store.read(5, topic="BatchCQ").buffers] == [203]
    assert store.read(0, topic="BatchCQ", count_max=5).next_offset == 4
    assert store.read(7, topic="BatchCQ").status == ReadStatus.OFFSET_OVERFLOW_ONE


def test_an_inner_batch_larger_than_every_limit_is_still_read(store):
    store.send(topic="BatchCQ", batch_size=1000)
    store.send(topic="BatchCQ")
    assert (store.read(0, topic="BatchCQ").count, store.read(0, topic="BatchCQ").next_offset) == (1000, 1000)


@pytest.mark.parametrize("count_max", [0, -1])
def test_one_message_is_read_however_few_are_asked_for(store, count_max):
    store.send()
    store.send()
    for more in ({}, {"accept": lambda code, ext: True}):
        result = store.read(count_max=count_max, **more)
        assert (result.status, result.count, result.next_offset) == (ReadStatus.FOUND, 1, 1)


def joined(result: read.ReadResult) -> read.ReadResult:
    """`result` with its windows as one: small ones are not joined where they lie side by side."""
    return msgspec.structs.replace(result, buffers=[memoryview(b"".join(result.buffers))])


sends = st.lists(st.tuples(st.integers(0, 2), st.integers(91, 400), st.integers(0, 2)), max_size=60)


@settings(max_examples=200, deadline=None)
@given(sends, st.integers(0, 20), st.integers(1, 40), st.sampled_from([300, 2_000, 1 << 30]), st.data())
def test_the_fast_path_reads_what_the_plain_loop_reads(tmp_path_factory, messages, offset, count_max, memory, data):
    store = Store(tmp_path_factory.mktemp("store"))
    for queue_id, size, tags_code in messages:
        store.send(size, queue_id=queue_id, tags_code=tags_code)
    if data.draw(st.booleans()):
        store.queues.write_pending()
    store.log.log_start = data.draw(st.integers(0, store.log.log_end))
    limits = ReadLimits(memory_bytes=memory, bytes_in_memory_max=2_000, bytes_on_disk_max=600)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read, "_COPIED_BYTES_MAX", data.draw(st.sampled_from([0, 1 << 30])))
        fast = store.read(offset, count_max=count_max, limits=limits)
    plain = store.read(offset, count_max=count_max, limits=limits, accept=lambda code, ext: True)
    assert joined(fast) == joined(plain)
    assert sum(map(len, fast.buffers)) == fast.size
    one_by_one = store.read(offset, count_max=count_max, limits=limits, accept_record=lambda record: True)
    assert joined(one_by_one) == joined(plain)


def test_a_record_that_stands_for_a_lost_one_is_read_twice_and_its_neighbours_of_other_queues_never(store):
    for number in range(3):
        store.log.append(100, number)
    # Queue offset 1 is lost, and the middle record belongs to another queue.
    store.queues.dispatch([DispatchRequest("SimpleCQ", 0, at, 100, 0, 0, offset) for at, offset in ((0, 0), (200, 2))])
    result = store.read()
    assert result == store.read(accept=lambda code, ext: True)
    assert [buffer[63] for buffer in result.buffers] == [0, 2, 2]


def test_physical_memory_is_known():
    assert ReadLimits.of_machine().memory_bytes == read.physical_memory_bytes() * 40 // 100 > 0
