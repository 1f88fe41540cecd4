"""Op records: when one is due, what it names, and when it need not be read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.deferred.op_records import OpBuffer, OpTracker, decode_op_body, encode_op_body

NOW = 1_800_000_000_000


def test_an_op_record_is_due_after_three_seconds_or_four_kilobytes():
    ops = OpBuffer()
    assert not ops.add(0, 7, NOW)
    assert ops.due(NOW + 2_999) == []
    assert ops.due(NOW + 3_000) == [0]
    ops.written(0)
    assert ops.due(NOW + 9_000) == []
    assert any(ops.add(0, 1_000_000 + i, NOW) for i in range(600))
    assert ops.due(NOW) == [0]


@given(st.lists(st.integers(0, 2**62)))
def test_an_op_body_names_its_queue_offsets(offsets):
    assert decode_op_body(encode_op_body(offsets)) == offsets


def test_an_op_body_of_java_4_is_one_number_and_garbage_is_nothing():
    assert decode_op_body(b"17") == [17]
    assert decode_op_body(b"x,,-3,5") == [5]


def test_op_records_are_done_in_order_as_the_check_moves_on():
    ops = OpTracker(op_offset=3)
    ops.read(3, [7, 9], progress=7)
    ops.read(4, [8], progress=7)
    ops.read(5, [1], progress=7)  # long passed
    ops.passed(8)
    assert ops.done_offset == 3
    ops.passed(7)
    assert ops.done_offset == 3
    ops.passed(9)
    assert ops.done_offset == 6 == ops.next_read
