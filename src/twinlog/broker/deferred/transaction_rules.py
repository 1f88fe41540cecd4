"""Half messages: messages whose producer has not yet said whether they count.

    half queue    ... | 7 | 8 | 9 | ...        RMQ_SYS_TRANS_HALF_TOPIC
    op queue      ... | "7,9," | ...           RMQ_SYS_TRANS_OP_HALF_TOPIC: these are finished

A commit stores the message in its real queue, a rollback nothing; then an op record names the half message's offset.
Op records name many and are written up to three seconds later, so a master that dies leaves commits without one. The
committed record itself says which half message it shows: whoever goes on with the log finds these commits and writes
their op records instead of asking again (`transaction_takeover`).

Both queues are read as the consumer group CID_RMQ_SYS_TRANS, and its offsets say how far everything is settled. A half
message that is still open after a while is written again at the end of the queue and its producer is asked, so the
group's offset always moves on. The two queues are Java's, so either program settles what the other left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.sends.message_rules import redelivery
from twinlog.store.log.append import Draft
from twinlog.wire import properties as names
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.message import Message
from twinlog.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK

OP_TAG = "d"
OP_BODY_BYTES_MAX = 4096
OP_INTERVAL_MS = 3_000
ENDED_MAX = 200_000


# -- ending a transaction ----------------------------------------------------------------------------


def end_problem(message: Message | None, header: EndTransactionHeader) -> str | None:
    """Why this half message cannot be ended by this request, in Java's words; None when it can."""
    if message is None or message.topic != HALF_TOPIC:
        return "Find prepared transaction message failed"
    if message.properties.get(names.PGROUP) != header.producer_group:
        return "The producer group wrong"
    if message.queue_offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if message.physical_offset != header.commit_log_offset:
        return "The commit log offset wrong"
    return None


def came_too_late(message: Message, header: EndTransactionHeader, timeout_ms: int, now_ms: int) -> bool:
    """Whether the producer set itself a limit and ends the transaction after it, unasked."""
    text = message.properties.get(names.CHECK_IMMUNITY_TIME)
    if header.from_transaction_check or not text:
        return False
    return now_ms - message.born_timestamp > immunity_ms(text, timeout_ms)


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """How long after its birth a half message is left alone."""
    try:
        seconds = int(text) if text else -1
    except ValueError:
        seconds = -1
    return timeout_ms if seconds == -1 else seconds * 1_000


def committed(message: Message, topic: str, queue_id: int) -> Draft:
    """The message that consumers will see."""
    draft = redelivery(message, topic, queue_id)
    draft.sys_flag = draft.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    draft.prepared_transaction_offset = message.physical_offset
    return draft


def shows_commit(record: Message, message: Message) -> bool:
    """Whether `record`, whose flag says that it was committed, is the half message `message` made visible."""
    return (
        message.topic == HALF_TOPIC
        and record.prepared_transaction_offset == message.physical_offset
        and record.properties.get(names.UNIQ_KEY) == message.properties.get(names.UNIQ_KEY)
        and record.body == message.body
    )


# -- op records --------------------------------------------------------------------------------------


class OpBuffer:
    """Finished half offsets that no op record names yet, per queue. An op record is due by time or by size."""

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._bytes: dict[int, int] = {}
        self._since_ms: dict[int, int] = {}

    def add(self, queue_id: int, half_offset: int, now_ms: int) -> bool:
        """Note a finished half message; True when its queue has enough for an op record."""
        self._offsets.setdefault(queue_id, []).append(half_offset)
        self._since_ms.setdefault(queue_id, now_ms)
        self._bytes[queue_id] = self._bytes.get(queue_id, 0) + len(str(half_offset)) + 1
        return self._bytes[queue_id] >= OP_BODY_BYTES_MAX

    def due(self, now_ms: int) -> list[int]:
        """Queues whose op record should be written now."""
        return [
            queue_id
            for queue_id, since_ms in self._since_ms.items()
            if now_ms - since_ms >= OP_INTERVAL_MS or self._bytes[queue_id] >= OP_BODY_BYTES_MAX
        ]

    @property
    def wake_ms(self) -> int | None:
        return min(self._since_ms.values()) + OP_INTERVAL_MS if self._since_ms else None

    def queues(self) -> list[int]:
        return list(self._offsets)

    def offsets(self, queue_id: int) -> list[int]:
        """What the next op record of the queue names; `written` takes it out."""
        return self._offsets.get(queue_id, [])

    def written(self, queue_id: int) -> None:
        for part in (self._offsets, self._bytes, self._since_ms):
            part.pop(queue_id, None)


def encode_op_body(half_offsets: Iterable[int]) -> bytes:
    return "".join(f"{offset}," for offset in half_offsets).encode()


def decode_op_body(body: bytes) -> list[int]:
    """The half offsets of an op record; 4.x writes a single one, without a comma."""
    return [int(word) for word in body.split(b",") if word.strip().isdigit()]


class OpTracker:
    """Which half messages are finished, and how far the op queue need not be read again.

    A half message that was written again keeps the identity of its first copy, so that it ends once, whichever copy its
    producer names. The last `ENDED_MAX` identities are remembered, which also makes a repeated commit harmless.
    """

    def __init__(self, op_offset: int) -> None:
        self.settled_offset = op_offset
        self.next_read = op_offset
        self._finished: dict[int, int] = {}  # half offset not passed yet -> op offset that names it
        self._open: dict[int, int] = {}  # op offset -> how many of its half offsets are not passed yet
        self._ended: dict[int, None] = {}  # identities, oldest first

    def end(self, identity: int) -> None:
        """A producer has just committed or rolled back this half message."""
        self._ended[identity] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def read(self, op_offset: int, half_offsets: Iterable[int], half_progress: int) -> None:
        """Take in the op record at `op_offset`; half messages before `half_progress` are history."""
        self.next_read = op_offset + 1
        fresh = 0
        for offset in half_offsets:
            self.end(offset)
            if offset >= half_progress and offset not in self._finished:
                self._finished[offset] = op_offset
                fresh += 1
        self._open[op_offset] = fresh
        self._settle()

    def is_finished(self, half_offset: int, identity: int) -> bool:
        return half_offset in self._finished or half_offset in self._ended or identity in self._ended

    @property
    def finished_count(self) -> int:
        """How many half messages that are not passed yet an op record names."""
        return len(self._finished)

    def passed(self, half_offset: int) -> None:
        """The half queue's progress is beyond this offset."""
        op_offset = self._finished.pop(half_offset, None)
        if op_offset is not None:
            self._open[op_offset] -= 1
            self._settle()

    def _settle(self) -> None:
        while self._open.get(self.settled_offset) == 0:
            del self._open[self.settled_offset]
            self.settled_offset += 1


# -- checking back -----------------------------------------------------------------------------------


class Verdict(Enum):
    """What to do with an open half message."""

    WAIT = "it is fresh, and so is everything after it"
    KEEP = "it is immune for longer than others: write it again, do not ask"
    ASK = "write it again and ask its producer"
    GIVE_UP = "it was asked about often enough, or is too old: put it aside"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """How patient the check is."""

    timeout_ms: int = 6_000
    checks_max: int = 15
    age_ms_max: int = 72 * 3_600_000

    def judge(self, message: Message, round_log_end: int, now_ms: int) -> Verdict:
        """The verdict on an open half message, in a round that began when the log ended at `round_log_end`."""
        age_ms = now_ms - message.born_timestamp
        if checks_so_far(message.properties) >= self.checks_max or age_ms > self.age_ms_max:
            return Verdict.GIVE_UP
        if message.physical_offset >= round_log_end:
            return Verdict.WAIT
        immunity = message.properties.get(names.CHECK_IMMUNITY_TIME)
        if 0 <= age_ms < immunity_ms(immunity, self.timeout_ms):
            return Verdict.KEEP if immunity else Verdict.WAIT
        return Verdict.ASK


def checks_so_far(properties: Mapping[str, str]) -> int:
    try:
        return int(properties.get(names.TRANSACTION_CHECK_TIMES, "0"))
    except ValueError:
        return 0


def rewritten(message: Message, verdict: Verdict) -> Draft:
    """The half message as it is written again at the end of its queue.

    It remembers the offset its producer knows: an answer that names the old one still ends it.
    """
    pairs = dict(message.properties)
    pairs.setdefault(names.TRAN_PREPARED_QUEUE_OFFSET, str(message.queue_offset))
    pairs[names.WAIT] = "false"
    if verdict is Verdict.ASK:
        pairs[names.TRANSACTION_CHECK_TIMES] = str(checks_so_far(pairs) + 1)
    return redelivery(message, HALF_TOPIC, message.queue_id, pairs)


def identity(message: Message) -> int:
    """The half offset that the producer was first told, which stays when the message is written again."""
    text = message.properties.get(names.TRAN_PREPARED_QUEUE_OFFSET, "")
    return int(text) if text.isdecimal() else message.queue_offset


def check_body(message: Message, topic: str, queue_id: int) -> Message:
    """What the producer is shown: the half message under its real topic and queue."""
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
