import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.store_at import NOW

from twinlog.store.recovery.quarantine import QUARANTINE_TOPIC, encode_filler, plan_fillers
from twinlog.wire.message import decode_message


@given(
    begin=st.integers(0, 10**6),
    size=st.one_of(st.integers(92, 5000), st.integers(2**22, 2**24)),
    parts=st.lists(st.integers(0, 6000)),
)
def test_fillers_cover_a_range_exactly(begin, size, parts):
    starts = [begin + part for part in parts]
    plan = plan_fillers(begin, begin + size, starts)
    assert plan[0][0] == begin
    assert [at + length for at, length in plan] == [*(at for at, _ in plan[1:]), begin + size]
    assert all(92 <= length <= 2**22 for _, length in plan)


@pytest.mark.parametrize("size", [92, 100, 109, 110, 5000])
def test_a_filler_is_a_valid_record_that_no_queue_takes(size):
    message = decode_message(encode_filler(4242, size, NOW))
    assert (message.physical_offset, message.store_size, message.store_timestamp) == (4242, size, NOW)
    assert QUARANTINE_TOPIC.startswith(message.topic) and message.sys_flag == 0xC
