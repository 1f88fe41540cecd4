"""Transactions: who may end one, and when its producer is asked."""

from __future__ import annotations

import pytest

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.deferred import transaction_rules
from twinlog.broker.deferred.op_records import OpTracker
from twinlog.broker.deferred.parked_record import decode_parked
from twinlog.broker.deferred.transaction_rules import CheckDecision, CheckRules
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.message import Message, encode_message

NOW = 1_800_000_000_000
LOG_END = 10_000


def prepared_message(**changes) -> Message:
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
        (prepared_message(), end_header(), None),
        (None, end_header(), "Find prepared transaction message failed"),
        (prepared_message(topic="T1"), end_header(), "Find prepared transaction message failed"),
        (prepared_message(), end_header(producer_group="other"), "The producer group wrong"),
        (prepared_message(), end_header(tran_state_table_offset=8), "The transaction state table offset wrong"),
        (prepared_message(), end_header(commit_log_offset=4712), "The commit log offset wrong"),
    ],
)
def test_a_half_message_ends_only_by_the_one_who_sent_it(message, header, problem):
    assert transaction_rules.end_problem(message, header) == problem


def test_a_commit_keeps_body_sender_and_properties_and_names_its_prepared_message():
    record = memoryview(encode_message(prepared_message(sys_flag=0x301, flag=5)))
    parked = decode_parked(record)
    assert parked is not None
    draft = transaction_rules.committed(parked, "T1", 1)
    assert (draft.topic, draft.queue_id, draft.body, draft.flag) == ("T1", 1, b"pay", 5)
    assert draft.sys_flag == 0x309
    assert draft.prepared_transaction_offset == 4711
    assert b"TRAN_MSG\x01true" in draft.properties and b"REAL_TOPIC\x01T1" in draft.properties


def test_an_unasked_answer_after_the_producers_own_limit_comes_too_late():
    message = prepared_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"})
    assert transaction_rules.came_too_late(message, end_header(), 6_000, NOW)
    assert not transaction_rules.came_too_late(message, end_header(from_transaction_check=True), 6_000, NOW)
    assert not transaction_rules.came_too_late(prepared_message(), end_header(), 6_000, NOW)


def test_a_message_written_again_ends_with_whichever_copy_its_producer_names():
    ops = OpTracker(0)
    copy = prepared_message(queue_offset=12, properties={"TRAN_PREPARED_QUEUE_OFFSET": "7"})
    assert not ops.is_finished(12, transaction_rules.identity(copy))
    ops.end(7)
    assert ops.is_finished(12, transaction_rules.identity(copy))
    assert not ops.is_finished(13, 13)


@pytest.mark.parametrize(
    ("message", "decision"),
    [
        (prepared_message(), CheckDecision.ASK),
        (prepared_message(born_timestamp=NOW - 5_999), CheckDecision.WAIT),
        (prepared_message(born_timestamp=NOW + 5_000), CheckDecision.ASK),  # a sender whose clock runs ahead
        (prepared_message(physical_offset=LOG_END), CheckDecision.WAIT),
        (prepared_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}), CheckDecision.KEEP),
        (prepared_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"}), CheckDecision.ASK),
        (prepared_message(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}), CheckDecision.ASK),
        (prepared_message(properties={"TRANSACTION_CHECK_TIMES": "14"}), CheckDecision.ASK),
        (prepared_message(properties={"TRANSACTION_CHECK_TIMES": "15"}), CheckDecision.GIVE_UP),
        (prepared_message(born_timestamp=NOW - 73 * 3_600_000), CheckDecision.GIVE_UP),
    ],
)
def test_an_open_half_message_waits_is_asked_about_or_given_up(message, decision):
    assert CheckRules().decide(message, LOG_END, NOW) is decision


def test_writing_again_counts_checks_and_remembers_the_first_offset():
    asked = transaction_rules.rewritten(prepared_message(), CheckDecision.ASK)
    assert asked.topic == HALF_TOPIC
    assert b"TRANSACTION_CHECK_TIMES\x011\x02" in asked.properties
    assert b"TRAN_PREPARED_QUEUE_OFFSET\x017\x02" in asked.properties
    kept = transaction_rules.rewritten(
        prepared_message(properties={"TRAN_PREPARED_QUEUE_OFFSET": "3"}), CheckDecision.KEEP
    )
    assert b"TRANSACTION_CHECK_TIMES" not in kept.properties
    assert b"TRAN_PREPARED_QUEUE_OFFSET\x013\x02" in kept.properties
