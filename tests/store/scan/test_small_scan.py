"""The short way from bytes to requests gives what the long way gives."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.scan.test_scan import encode_log, messages

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.scan.replay import requests_of
from twinlog.store.scan.scan import scan
from twinlog.store.scan.small_scan import scan_small
from twinlog.store.scan.stop import StopReason
from twinlog.wire.message import Message

LEVELS = DelayLevels()


def compare(log):
    (batch,) = scan(log, 0, len(log), 1000)
    requests, end, waits = scan_small(memoryview(log), 0, len(log), 1000, LEVELS)
    assert requests == requests_of(batch, LEVELS)
    assert end == batch.stop.position
    if waits and end < len(log):
        assert batch.stop.reason is StopReason.SHORT or not any(log[end:])


@settings(max_examples=200, deadline=None)
@given(
    made=st.lists(messages, min_size=1, max_size=5),
    damage=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 3000),
)
def test_few_records_are_taken_as_a_scan_takes_them(made, damage, cut):
    log = encode_log(made)
    for at, byte in damage:
        log[at % len(log)] = byte
    compare(bytes(log[: len(log) - cut % len(log)]))


def test_delay_messages_and_inner_batches_too():
    compare(
        bytes(
            encode_log(
                [
                    Message(topic=SCHEDULE_TOPIC, body=b"", store_timestamp=5, properties={"DELAY": "2"}),
                    Message(topic="B", body=b"", sys_flag=0xC0, properties={"INNER_NUM": "3", "INNER_BASE": "7"}),
                    Message(topic="B", body=b"", sys_flag=0xC0, properties={"INNER_NUM": "x"}),
                ]
            )
        )
    )


def test_the_beginning_of_a_record_is_worth_waiting_for_and_garbage_is_not():
    log = bytes(encode_log([Message(topic="T", body=b"x" * 100)]))
    for length in range(len(log)):
        assert scan_small(memoryview(log), 0, length, 1000, LEVELS) == ([], 0, True)
    assert scan_small(memoryview(b"\xff" * 60), 0, 60, 0, LEVELS) == ([], 0, False)
    assert scan_small(memoryview(b"\xff" * 20), 0, 20, 0, LEVELS) == ([], 0, False)
