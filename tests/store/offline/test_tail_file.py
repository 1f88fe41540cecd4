"""Tails that were set aside: what is read from them, and what of it is sent again."""

import pytest

from twinlog.store.offline.tail_file import Damage, NotATail, count_messages, read_tail, sent_again
from twinlog.wire.message import Message, encode_message
from twinlog.wire.record_layout import MAGIC_BLANK, SIZE_AND_MAGIC


def message(number=0, **given):
    given = {"topic": "T", "properties": {"UNIQ_KEY": f"K{number}", "TAGS": "a"}, **given}
    return Message(body=b"body %d" % number, physical_offset=1000 + number, **given)


def tail(tmp_path, *parts):
    data = b"".join(parts)
    path = tmp_path / f"tail-1000-{1000 + len(data)}"
    path.write_bytes(data)
    return path


def test_records_come_in_order_over_the_end_of_a_segment(tmp_path):
    blank = SIZE_AND_MAGIC.pack(20, MAGIC_BLANK) + bytes(12)
    path = tail(tmp_path, encode_message(message(0)), blank, encode_message(message(1)))
    assert [one.body for one in read_tail(path)] == [b"body 0", b"body 1"]
    assert count_messages(path) == 2  # by their heads alone


def test_a_damaged_record_ends_the_tail_with_its_place_and_reason(tmp_path):
    first, second = encode_message(message(0)), bytearray(encode_message(message(1)))
    second[89] ^= 1  # in the body
    path = tail(tmp_path, first, bytes(second))
    whole, damage = read_tail(path)
    assert whole.body == b"body 0"
    assert isinstance(damage, Damage) and damage.physical_offset == 1000 + len(first) and damage.bytes == len(second)


def test_another_file_is_refused_with_the_reason(tmp_path):
    with pytest.raises(NotATail, match="its name must be tail-"):
        list(read_tail(tmp_path / "commitlog"))
    path = tmp_path / "tail-0-10"
    path.write_bytes(b"123")
    with pytest.raises(NotATail, match="it has 3 bytes, its name says 10"):
        list(read_tail(path))


def test_a_message_keeps_its_unique_key_and_loses_what_its_broker_added():
    stored = message(properties={"UNIQ_KEY": "K", "TAGS": "a", "MSG_REGION": "r", "TRACE_ON": "true", "CLUSTER": "c"})
    assert sent_again(stored) == ("T", {"UNIQ_KEY": "K", "TAGS": "a"})


@pytest.mark.parametrize("delay", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_message_whose_delay_is_over_does_not_wait_again(delay):
    assert sent_again(message(topic="T", properties={"UNIQ_KEY": "U", "REAL_TOPIC": "T", delay: "3"})) == (
        "T",
        {"UNIQ_KEY": "U"},
    )


def test_a_delayed_message_goes_to_its_own_topic_with_its_delay():
    properties = {"UNIQ_KEY": "K", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "1"}
    assert sent_again(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties)) == (
        "T",
        {"UNIQ_KEY": "K", "DELAY": "3"},
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "does not name its topic"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "RocketMQ's own"),
        ({"topic": "rmq_sys_anything"}, "RocketMQ's own"),
        ({"topic": "%RETRY%G"}, "has retries"),
        ({"properties": {}}, "no unique key"),
    ],
)
def test_what_is_not_sent_again_has_a_reason(given, reason):
    assert reason in sent_again(message(**given))
