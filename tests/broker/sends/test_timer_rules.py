"""When a timer message is due, by its properties, and how it is recalled."""

from __future__ import annotations

import pytest

from twinlog.broker.sends.timer_rules import (
    TimerRules,
    out_time,
    place_timer,
    recall_handle,
)
from twinlog.net.errors import RequestRefused
from twinlog.wire.values.recall_handle import RecallHandle, parse_recall_handle

NOW = 1_800_000_000_500
RULES = TimerRules()


@pytest.mark.parametrize(
    ("pairs", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": "5"}, NOW - 500 + 5_000),
        ({"TIMER_DELAY_MS": "1500"}, NOW + 500),
        ({"TIMER_DELIVER_MS": str(NOW + 10_000)}, NOW - 500 + 10_000),
        ({"TIMER_DELIVER_MS": str(NOW + 500)}, NOW - 500),  # exactly on a second: one second less
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "1"}, NOW - 500 + 5_000),
        ({"TIMER_DELAY_SEC": "259200"}, NOW - 500 + 259_200_000),
    ],
)
def test_a_timer_is_rounded_down_and_due_one_step_later(pairs, out_ms):
    assert place_timer(pairs, RULES, NOW)
    assert out_time(pairs) == out_ms


@pytest.mark.parametrize("pairs", [{"TIMER_DELIVER_MS": str(NOW)}, {"TIMER_DELAY_SEC": "-3"}, {"TIMER_DELAY_MS": "0"}])
def test_a_time_that_has_come_needs_no_timer(pairs):
    assert not place_timer(pairs, RULES, NOW)
    assert "TIMER_OUT_MS" not in pairs


@pytest.mark.parametrize(
    "pairs",
    [
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELIVER_MS": "9" * 30},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "K"},
    ],
)
def test_an_impossible_time_is_refused_with_javas_words(pairs):
    with pytest.raises(RequestRefused) as refused:
        place_timer(pairs, RULES, NOW)
    assert refused.value.code == 13
    assert refused.value.remark.startswith("timer message illegal, the delay time should not be bigger than the max")
    assert "259200000ms" in refused.value.remark


def test_timers_that_are_switched_off_are_refused():
    with pytest.raises(RequestRefused) as refused:
        place_timer({"TIMER_DELAY_SEC": "1"}, TimerRules(enabled=False), NOW)
    assert refused.value.code == 1
    assert refused.value.remark == "accurate timer message is not enabled, timerWheelEnable is false"


def test_a_recall_handle_is_read_back():
    pairs = {"TIMER_OUT_MS": "1800000005000", "REAL_TOPIC": "T1", "UNIQ_KEY": "ABC"}
    handle = recall_handle("broker-a", pairs) or ""
    assert parse_recall_handle(handle) == RecallHandle("T1", "broker-a", 1_800_000_005_001, "ABC")
    assert parse_recall_handle("?") is None and parse_recall_handle("djEgYSBi") is None
    forged = RecallHandle("T1", "broker-a", 1_800_000_005_001, "ABC\x02TIMER_DEL_UNIQKEY\x01T2+XYZ")
    assert parse_recall_handle(forged.encode()) is None
    assert recall_handle("broker-a", {"TIMER_OUT_MS": "x", "REAL_TOPIC": "T", "UNIQ_KEY": "K"}) is None
