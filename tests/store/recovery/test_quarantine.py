import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.store_at import NOW, bodies, fill, kill, open_store, write_log

from twinlog.store.recovery import recovery
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


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("step", ["save_bytes", "redirect_units", "replace_bytes", "half of replace_bytes"])
def test_a_crash_after_any_step_of_a_quarantine_is_made_good_by_the_next_start(tmp_path, monkeypatch, step):
    store = open_store(tmp_path)
    places = fill(store, 30, queues=1)
    store.flush_queues()
    kill(store)
    begin, end = places[10].physical_offset, places[14].physical_offset
    write_log(tmp_path, begin, b"\xff" * (end - begin))
    real = getattr(recovery, step.split()[-1])

    def crash(*arguments):
        real(*arguments)
        if step == "half of replace_bytes":
            middle = (begin + end) // 2
            arguments[0].segments[0].map[middle:end] = b"\xff" * (end - middle)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(recovery, step.split()[-1], crash)
        with pytest.raises(Crash):
            open_store(tmp_path)
    with open_store(tmp_path) as store:
        found = bodies(store)
        assert set(found) == {b"body %d" % n for n in range(30) if n not in range(10, 14)}
        assert len(found) == store.max_offset("TopicA", 0) == 30  # a lost place is read as its neighbour
        assert store.log_end == places[-1].end
    saved = (tmp_path / "store" / "quarantine" / f"{begin:020d}-{end:020d}.bytes").read_bytes()
    assert saved == b"\xff" * (end - begin)
    with open_store(tmp_path) as store:
        assert not store.report.damages
