"""Transactions: who may end one, when its producer is asked, and what is written.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC until its producer decides. A
commit stores the message in its real queue, a rollback nothing; then an op record names the half message's offset
(`op_records`). A master that dies leaves commits without an op record. The committed record itself names its prepared
message, so the next master finds these commits and writes their op records (`transaction_takeover`).

Both queues are read as the consumer group CID_RMQ_SYS_TRANS, whose offsets are the progress. A message that is still
open after a while is written again at the end of the queue and its producer is asked, so the progress never stops. The
two queues are Java's, so each program finishes what the other left open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.deferred.parked_record import ParkedRecord, delivery
from twinlog.broker.sends.parking import redelivery
from twinlog.store.log.append import Draft
from twinlog.wire import properties as names
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.message import Message
from twinlog.wire.sends.end_headers import EndFields, decode_end_fields
from twinlog.wire.values.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK

# -- ending a transaction ----------------------------------------------------------------------------


def read_end(fields: dict[str, str] | None) -> EndTransactionHeader | EndFields:
    """The header of END_TRANSACTION. What is missing or unreadable is None, as in every header."""
    return decode_end_fields(fields or {}) or decode_fields(EndTransactionHeader, fields)


def end_problem(message: ParkedRecord | None, header: EndTransactionHeader | EndFields) -> str | None:
    """Why this request cannot end the transaction of `message`, in Java's words; None when it can."""
    if message is None or message.topic != HALF_TOPIC:
        return "Find prepared transaction message failed"
    if message.properties.get(names.PGROUP) != header.producer_group:
        return "The producer group wrong"
    if message.queue_offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if message.physical_offset != header.commit_log_offset:
        return "The commit log offset wrong"
    return None


def came_too_late(
    message: ParkedRecord, header: EndTransactionHeader | EndFields, timeout_ms: int, now_ms: int
) -> bool:
    """Whether the producer set a time limit for itself, and ends the transaction after it without being asked."""
    text = message.properties.get(names.CHECK_IMMUNITY_TIME)
    if header.from_transaction_check or not text:
        return False
    return now_ms - message.born_timestamp > immunity_ms(text, timeout_ms)


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """How long after it was sent a half message is not checked."""
    try:
        seconds = int(text) if text else -1
    except ValueError:
        seconds = -1
    return timeout_ms if seconds == -1 else seconds * 1_000


def committed(message: ParkedRecord, topic: str, queue_id: int) -> Draft:
    """The message that consumers will see."""
    draft = delivery(message, topic, queue_id)
    draft.sys_flag = draft.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    draft.prepared_transaction_offset = message.physical_offset
    return draft


def is_commit_of(record: Message, message: Message) -> bool:
    """Whether `record`, which is flagged as committed, is the commit of the half message `message`."""
    return (
        message.topic == HALF_TOPIC
        and record.prepared_transaction_offset == message.physical_offset
        and record.properties.get(names.UNIQ_KEY) == message.properties.get(names.UNIQ_KEY)
        and record.body == message.body
    )


# -- checking back -----------------------------------------------------------------------------------


class CheckDecision(Enum):
    """What to do with a half message whose producer has not decided."""

    WAIT = "it is too young, and so is everything after it"
    KEEP = "its producer set a longer time: write it again, do not ask"
    ASK = "write it again and ask its producer"
    GIVE_UP = "its producer was asked often enough, or it is too old: move it to TRANS_CHECK_MAX_TIME_TOPIC"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """How long and how often the check waits for producers."""

    timeout_ms: int = 6_000
    checks_max: int = 15
    age_ms_max: int = 72 * 3_600_000

    def decide(self, message: Message, round_log_end: int, now_ms: int) -> CheckDecision:
        """What to do with an open message, in a round that began when the log ended at `round_log_end`."""
        age_ms = now_ms - message.born_timestamp
        if checks_so_far(message.properties) >= self.checks_max or age_ms > self.age_ms_max:
            return CheckDecision.GIVE_UP
        if message.physical_offset >= round_log_end:
            return CheckDecision.WAIT
        immunity = message.properties.get(names.CHECK_IMMUNITY_TIME)
        if 0 <= age_ms < immunity_ms(immunity, self.timeout_ms):
            return CheckDecision.KEEP if immunity else CheckDecision.WAIT
        return CheckDecision.ASK


def checks_so_far(properties: Mapping[str, str]) -> int:
    try:
        return int(properties.get(names.TRANSACTION_CHECK_TIMES, "0"))
    except ValueError:
        return 0


def rewritten(message: Message, decision: CheckDecision) -> Draft:
    """The half message as it is written again at the end of its queue.

    It keeps the offset its producer knows: an answer that names the old one still ends it.
    """
    pairs = dict(message.properties)
    pairs.setdefault(names.TRAN_PREPARED_QUEUE_OFFSET, str(message.queue_offset))
    pairs[names.WAIT] = "false"
    if decision is CheckDecision.ASK:
        pairs[names.TRANSACTION_CHECK_TIMES] = str(checks_so_far(pairs) + 1)
    return redelivery(message, HALF_TOPIC, message.queue_id, pairs)


def identity(message: Message | ParkedRecord) -> int:
    """The queue offset of the first copy, which its producer knows; it stays when the message is written again."""
    text = message.properties.get(names.TRAN_PREPARED_QUEUE_OFFSET, "")
    return int(text) if text.isdecimal() else message.queue_offset


def check_body(message: Message, topic: str, queue_id: int) -> Message:
    """What the producer is asked about: the half message under its real topic and queue."""
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        flag=message.flag,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_timestamp=message.store_timestamp,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        properties=message.properties,
    )
