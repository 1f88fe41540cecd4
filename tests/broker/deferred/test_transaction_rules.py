"""Half messages: who may end them, when their producer is asked, and what the op queue says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.deferred import transaction_rules
from twinlog.broker.deferred.transaction_rules import CheckRules, OpBuffer, OpTracker, Verdict
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.message import Message

NOW = 1_800_000_000_000
LOG_END = 10_000


def half_message(**changes) -> Message:
    values = {
        "topic": HALF_TOPIC,
        "body": b"pay",
        "queue_offset": 7,
        "physical_offset": 4711,
        "born_timestamp": NOW - 10_000,
        "store_timestamp": NOW - 10_000,
        "properties": {"PGROUP": "PG", "REAL_TOPIC": "T1", "REAL_QID": "1", "UNIQ_KEY": "K", "TRAN_MSG": "true"},
    }
    values["properties"] = {**values["properties"], **changes.pop("properties", {})}
    return Message(**{**values, **changes})


def end_header(**changes) -> EndTransactionHeader:
    values = {"producer_group": "PG", "tran_state_table_offset": 7, "commit_log_offset": 4711, "commit_or_rollback": 8}
    return EndTransactionHeader(**{**values, **changes})


@pytest.mark.parametrize(
    ("message", "header", "problem"),
    [
        (half_message(), end_header(), None),
        (None, end_header(), "Find prepared transaction message failed"),
        (half_message(topic="T1"), end_header(), "Find prepared transaction message failed"),
        (half_message(), end_header(producer_group="other"), "The producer group wrong"),
        (half_message(), end_header(tran_state_table_offset=8), "The transaction state table offset wrong"),
        (half_message(), end_header(commit_log_offset=4712), "The commit log offset wrong"),
    ],
)
def test_a_half_message_ends_only_by_the_one_who_sent_it(message, header, problem):
    assert transaction_rules.end_problem(message, header) == problem


def test_a_commit_keeps_body_sender_and_properties_and_names_its_half_message():
    draft = transaction_rules.committed(half_message(sys_flag=0x301, flag=5), "T1", 1)
    assert (draft.topic, draft.queue_id, draft.body, draft.flag) == ("T1", 1, b"pay", 5)
    assert draft.sys_flag == 0x309
    assert draft.prepared_transaction_offset == 4711
    assert b"TRAN_MSG\x01true" in draft.properties and b"REAL_TOPIC\x01T1" in draft.properties


def test_an_unasked_answer_after_the_producers_own_limit_comes_too_late():
    message = half_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"})
    assert transaction_rules.came_too_late(message, end_header(), 6_000, NOW)
    assert not transaction_rules.came_too_late(message, end_header(from_transaction_check=True), 6_000, NOW)
    assert not transaction_rules.came_too_late(half_message(), end_header(), 6_000, NOW)


def test_an_op_record_is_due_after_three_seconds_or_four_kilobytes():
    ops = OpBuffer()
    assert not ops.add(0, 7, NOW)
    assert ops.due(NOW + 2_999) == []
    assert ops.wake_ms == NOW + 3_000
    assert ops.due(NOW + 3_000) == [0]
    ops.written(0)
    assert ops.due(NOW + 9_000) == [] and ops.wake_ms is None
    assert any(ops.add(0, 1_000_000 + i, NOW) for i in range(600))
    assert ops.due(NOW) == [0]


@given(st.lists(st.integers(0, 2**62)))
def test_an_op_body_names_its_half_offsets(offsets):
    assert transaction_rules.decode_op_body(transaction_rules.encode_op_body(offsets)) == offsets


def test_an_op_body_of_java_4_is_one_number_and_garbage_is_nothing():
    assert transaction_rules.decode_op_body(b"17") == [17]
    assert transaction_rules.decode_op_body(b"x,,-3,5") == [5]


def test_the_op_queue_is_settled_in_order_as_the_half_queue_moves_on():
    ops = OpTracker(op_offset=3)
    ops.read(3, [7, 9], half_progress=7)
    ops.read(4, [8], half_progress=7)
    ops.read(5, [1], half_progress=7)  # long passed
    ops.passed(8)
    assert ops.settled_offset == 3
    ops.passed(7)
    assert ops.settled_offset == 3
    ops.passed(9)
    assert ops.settled_offset == 6 == ops.next_read


def test_a_message_written_again_ends_with_whichever_copy_its_producer_names():
    ops = OpTracker(0)
    copy = half_message(queue_offset=12, properties={"TRAN_PREPARED_QUEUE_OFFSET": "7"})
    assert not ops.is_finished(12, transaction_rules.identity(copy))
    ops.end(7)
    assert ops.is_finished(12, transaction_rules.identity(copy))
    assert not ops.is_finished(13, 13)


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (half_message(), Verdict.ASK),
        (half_message(born_timestamp=NOW - 5_999), Verdict.WAIT),
        (half_message(born_timestamp=NOW + 5_000), Verdict.ASK),  # a sender whose clock runs ahead
        (half_message(physical_offset=LOG_END), Verdict.WAIT),
        (half_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}), Verdict.KEEP),
        (half_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"}), Verdict.ASK),
        (half_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}), Verdict.ASK),
        (half_message(properties={"TRANSACTION_CHECK_TIMES": "14"}), Verdict.ASK),
        (half_message(properties={"TRANSACTION_CHECK_TIMES": "15"}), Verdict.GIVE_UP),
        (half_message(born_timestamp=NOW - 73 * 3_600_000), Verdict.GIVE_UP),
    ],
)
def test_an_open_half_message_waits_is_asked_about_or_given_up(message, verdict):
    assert CheckRules().judge(message, LOG_END, NOW) is verdict


def test_writing_again_counts_checks_and_remembers_the_first_offset():
    asked = transaction_rules.rewritten(half_message(), Verdict.ASK)
    assert asked.topic == HALF_TOPIC
    assert b"TRANSACTION_CHECK_TIMES\x011\x02" in asked.properties
    assert b"TRAN_PREPARED_QUEUE_OFFSET\x017\x02" in asked.properties
    kept = transaction_rules.rewritten(half_message(properties={"TRAN_PREPARED_QUEUE_OFFSET": "3"}), Verdict.KEEP)
    assert b"TRANSACTION_CHECK_TIMES" not in kept.properties
    assert b"TRAN_PREPARED_QUEUE_OFFSET\x013\x02" in kept.properties
