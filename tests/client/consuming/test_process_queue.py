from hypothesis import given
from hypothesis import strategies as st

from twinlog.client.consuming.process_queue import CacheLimits, ProcessQueue
from twinlog.wire.message import Message


def messages(*offsets: int) -> list[Message]:
    return [Message(topic="T", body=b"12345", queue_offset=offset) for offset in offsets]


def test_an_empty_queue_commits_where_the_next_pull_starts():
    process = ProcessQueue(7)
    assert process.commit_offset == 7
    process.add([], 12)
    assert process.commit_offset == 12


def test_the_commit_offset_waits_for_the_oldest_message():
    process = ProcessQueue(0)
    first, second, third = messages(0, 1, 2)
    process.add([first, second, third], 3)
    process.acknowledge(second, 0)
    assert process.commit_offset == 0
    process.acknowledge(first, 0)
    assert process.commit_offset == 2
    process.acknowledge(third, 0)
    assert (process.commit_offset, len(process), process.bytes) == (3, 0, 0)


@given(st.permutations(range(8)))
def test_nothing_unacknowledged_is_ever_committed(order):
    process = ProcessQueue(0)
    pulled = messages(*range(8))
    process.add(pulled, 8)
    done = set()
    for offset in order:
        process.acknowledge(pulled[offset], 0)
        done.add(offset)
        assert set(range(process.commit_offset)) <= done
    assert process.commit_offset == 8


def test_after_a_jump_earlier_messages_no_longer_count():
    process = ProcessQueue(100)
    (old,) = messages(100)
    process.add([old], 101)
    process.jump(5)
    process.acknowledge(old, 0)
    assert (process.commit_offset, process.next_offset, process.generation) == (5, 5, 1)


def test_a_queue_is_full_by_count_bytes_or_span():
    process = ProcessQueue(0)
    process.add(messages(0, 1, 50), 51)
    assert process.is_full(CacheLimits(messages_max=3))
    assert process.is_full(CacheLimits(bytes_max=15))
    assert process.is_full(CacheLimits(span_max=50))
    assert not process.is_full(CacheLimits())
    assert not ProcessQueue(0).is_full(CacheLimits(messages_max=0))
