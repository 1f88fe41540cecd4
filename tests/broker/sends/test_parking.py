"""Where a message waits: the schedule topic, the timer topic, the half topic, or nowhere."""

from __future__ import annotations

import pytest

from twinlog.broker.sends.parking import park, prepare_half, real_place, redelivery
from twinlog.broker.sends.timer_rules import TimerRules
from twinlog.net.errors import RequestRefused
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.log.append import Draft
from twinlog.wire.message import Message
from twinlog.wire.properties import decode_properties

NOW = 1_800_000_000_500
LEVELS = DelayLevels()


def parked(pairs: dict[str, str], **draft) -> Draft:
    made = Draft(**{"topic": "T1", "queue_id": 3, "body": b"x", **draft})
    park(made, pairs, LEVELS, TimerRules(), NOW)
    return made


def test_a_delay_level_sends_a_message_to_the_queue_of_its_level():
    pairs = {"DELAY": "3"}
    draft = parked(pairs)
    assert (draft.topic, draft.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert pairs == {"DELAY": "3", "REAL_TOPIC": "T1", "REAL_QID": "3"}


def test_a_level_above_the_last_is_the_last_and_wins_over_a_time():
    pairs = {"DELAY": "99", "TIMER_DELAY_SEC": "1"}
    assert parked(pairs).queue_id == 17
    assert pairs["DELAY"] == "18" and "TIMER_DELAY_SEC" not in pairs


@pytest.mark.parametrize("pairs", [{"DELAY": "0"}, {"DELAY": "-1"}, {"TIMER_OUT_MS": "5", "TIMER_DELAY_SEC": "5"}, {}])
def test_other_messages_go_straight_to_their_queue(pairs):
    assert parked(dict(pairs)).topic == "T1"


def test_a_level_that_is_not_a_number_is_refused_with_the_value():
    with pytest.raises(RequestRefused, match="DELAY=soon"):
        parked({"DELAY": "soon"})


def test_a_timer_message_goes_to_the_wheel_topic():
    pairs = {"TIMER_DELAY_SEC": "5"}
    draft = parked(pairs)
    assert (draft.topic, draft.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert pairs["TIMER_OUT_MS"] == str(NOW - 500 + 5_000)


def test_a_prepared_record_is_left_alone_and_a_committed_one_is_delayed():
    assert parked({"DELAY": "1"}, sys_flag=4).topic == "T1"
    assert parked({"DELAY": "1"}, sys_flag=8).topic == "SCHEDULE_TOPIC_XXXX"


def test_a_half_message_hides_in_the_half_topic_and_is_not_delayed_yet():
    pairs = {"TRAN_MSG": "true", "UNIQ_KEY": "K", "DELAY": "3"}
    draft = Draft("T1", 3, b"x", sys_flag=0x305)
    prepare_half(draft, pairs)
    assert (draft.topic, draft.queue_id, draft.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0x301)
    assert decode_properties(draft.properties)["__transactionId__"] == "K"
    park(draft, pairs, LEVELS, TimerRules(), NOW)
    assert draft.topic == "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.mark.parametrize(
    ("pairs", "place"),
    [
        ({"REAL_TOPIC": "T1", "REAL_QID": "3"}, ("T1", 3)),
        ({"REAL_TOPIC": "T1"}, None),
        ({"REAL_TOPIC": "T1", "REAL_QID": "x"}, None),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, None),
    ],
)
def test_a_parked_message_knows_where_it_belongs(pairs, place):
    assert real_place(Message(topic="SCHEDULE_TOPIC_XXXX", body=b"", properties=pairs)) == place


def test_a_redelivered_message_keeps_everything_but_its_place():
    message = Message(
        topic="SCHEDULE_TOPIC_XXXX", body=b"z", flag=2, sys_flag=0x301, born_timestamp=9, born_host=("1.2.3.4", 5),
        reconsume_times=2, properties={"A": "b"},
    )  # fmt: skip
    draft = redelivery(message, "T1", 1)
    assert (draft.topic, draft.queue_id, draft.body, draft.flag, draft.sys_flag) == ("T1", 1, b"z", 2, 0x301)
    assert (draft.born_timestamp, draft.born_host, draft.reconsume_times) == (9, ("1.2.3.4", 5), 2)
    assert draft.properties == b"A\x01b\x02"
    too_much = redelivery(message, "T1", 1, {"A": "b", "B": "c" * 40_000})
    assert too_much.properties == b"A\x01b\x02"
