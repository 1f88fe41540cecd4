"""Pending timer messages: which are due, and which count as delivered."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.deferred.timer_table import TimerTable
from twinlog.broker.sends.timer_rules import TimerRules, cancelled_key, message_key, out_time, place_timer

NOW = 1_800_000_000_500
RULES = TimerRules()
VECTORS = Path(__file__).parents[2] / "vectors"


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 30_000)), max_size=40))
def test_every_timer_is_delivered_once_and_never_before_its_time(wishes):
    """Each wish is (when it is sent, how long after that it wants to be delivered)."""
    table, sent, delivered = TimerTable(1_000), sorted(wishes), {}
    wanted = {}
    for now_ms in range(0, 62_000, 250):
        while sent and sent[0][0] <= now_ms:
            _, delay_ms = sent.pop(0)
            pairs = {"TIMER_DELIVER_MS": str(NOW + now_ms + delay_ms)}
            if place_timer(pairs, RULES, NOW + now_ms):
                wanted[table.queue_offset] = NOW + now_ms + delay_ms
                table.add(table.queue_offset, out_time(pairs) or 0)
                table.queue_offset += 1
        while (offset := table.first_due(NOW + now_ms)) is not None:
            assert offset not in delivered
            delivered[offset] = NOW + now_ms
            table.delivered()
        table.caught_up(NOW + now_ms)
        pending = wanted.keys() - delivered.keys()
        assert table.low_offset == min(pending, default=table.queue_offset)
        assert len(table) == len(pending)
    assert delivered.keys() == wanted.keys()
    for offset, at_ms in delivered.items():
        assert 0 <= at_ms - wanted[offset] < 1_250


def test_a_late_message_holds_back_what_counts_as_delivered():
    table = TimerTable(1_000)
    table.caught_up(20_500)
    assert table.delivered_before_ms == 20_000
    table.add(0, 5_000)
    assert table.delivered_before_ms == 5_000
    assert table.first_due(20_500) == 0
    table.delivered()
    assert table.delivered_before_ms == 20_000


def test_an_earlier_slot_may_come_while_another_is_half_delivered():
    table = TimerTable(1_000)
    for offset in range(3):
        table.add(offset, 5_000)
    assert table.first_due(6_000) == 0
    table.delivered()
    table.add(3, 4_000)
    order = []
    while (offset := table.first_due(6_000)) is not None:
        order.append(offset)
        table.delivered()
    assert order == [3, 1, 2]


def test_old_messages_are_taken_out_to_be_parked_again():
    table = TimerTable(1_000, queue_offset=4)
    for offset, out_ms in enumerate((50_000, 40_000, 50_000, 60_000)):
        table.add(offset, out_ms)
    assert table.before(2) == [0, 1]
    table.drop_before(2)
    assert table.before(2) == []
    assert table.low_offset == 2 and table.wake_ms == 51_000 and len(table) == 2


def test_a_later_message_replaces_an_earlier_one_of_its_own_topic_by_either_form_of_its_key():
    table = TimerTable(1_000)
    key = message_key({"UNIQ_KEY": "K", "REAL_TOPIC": "T1"})
    for named in ("T1+K", "K"):
        table.replace(cancelled_key({"TIMER_DEL_UNIQKEY": named, "REAL_TOPIC": "T1"}) or "", 9)
        assert table.is_replaced(key, 3)
        assert not table.is_replaced(key, 9)
        assert not table.is_replaced("T2+K", 3) and not table.is_replaced(None, 3)
        table.forget_replacement("T1+K", 9)
        assert not table.is_replaced(key, 3)
        table.replace(cancelled_key({"TIMER_DEL_UNIQKEY": named, "REAL_TOPIC": "T2"}) or "", 9)
        assert not table.is_replaced(key, 3)
