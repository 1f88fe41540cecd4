"""What a user gives to be sent, and what comes back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from twinlog.client.answer_fields import read_number
from twinlog.client.errors import BadMessage
from twinlog.client.name_rules import check_topic
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import ResponseCode
from twinlog.wire.java_text import java_hash


class SendStatus(Enum):
    """What the broker promises about a stored message."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT  # stored, its flush is not confirmed
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT  # stored, no replica confirmed it
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE  # stored, there is no replica


_DELAYS = frozenset({names.DELAY, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC, names.TIMER_DELIVER_MS})
STORED_CODES: dict[int, SendStatus] = {status.value: status for status in SendStatus}


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message (the first of a batch) was stored."""

    status: SendStatus
    message_id: str  # the sender's unique key; several joined with "," for a batch
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str = ""  # names the broker and the place in its log
    transaction_id: str | None = None
    recall_handle: str | None = None  # of a timer message


@dataclass(slots=True)
class Outgoing:
    """A message to send. Text bodies are sent as UTF-8.

    At most one of `delay_level` (1 to 18, the broker's list of delays), `delay_ms` and
    `deliver_at_ms` (5.x timer messages) may be set.
    """

    topic: str
    body: bytes | str
    tags: str = ""
    keys: str | Sequence[str] = ""  # what the message can be looked up by
    properties: dict[str, str] = field(default_factory=dict)
    sharding_key: str = ""  # messages with the same key go to the same queue, in order
    delay_level: int = 0
    delay_ms: int = 0
    deliver_at_ms: int = 0
    flag: int = 0
    wait_stored: bool = True  # the broker answers after flush and replication as it is set up

    def wire_properties(self) -> dict[str, str]:
        """All properties of the message by their names on the wire."""
        keys = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
        timing = {
            names.DELAY: self.delay_level,
            names.TIMER_DELAY_MS: self.delay_ms,
            names.TIMER_DELIVER_MS: self.deliver_at_ms,
        }
        if sum(1 for value in timing.values() if value) > 1:
            raise BadMessage(f"message for {self.topic!r} is delayed in two ways ({timing}); set one of them")
        own = {
            names.TAGS: self.tags,
            names.KEYS: keys,
            names.SHARDING_KEY: self.sharding_key,
            **{name: str(value) for name, value in timing.items() if value},
            names.WAIT: "true" if self.wait_stored else "false",
        }
        return {name: str(value) for name, value in {**self.properties, **own}.items() if value != ""}

    @property
    def is_delayed(self) -> bool:
        """Whether consumers get it later, by a member of its own or by a property, as one that is sent on may have."""
        if self.delay_level or self.delay_ms or self.deliver_at_ms:
            return True
        given = self.properties
        if not given or _DELAYS.isdisjoint(given):
            return False
        return any(given.get(name, "") not in ("", "0") for name in _DELAYS)


def body_bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)


def check_message(message: Outgoing, bytes_max: int) -> bytes:
    """The body's bytes; BadMessage for a message that a broker would refuse."""
    check_topic(message.topic)
    body = body_bytes(message.body)
    size = len(body)
    if size == 0:
        raise BadMessage(f"message for {message.topic!r} has no body, and RocketMQ stores no empty messages")
    if size > bytes_max:
        raise BadMessage(f"message for {message.topic!r} has {size} bytes, the limit is {bytes_max}; split it")
    return body


def read_send_answer(code: int, fields: dict[str, str] | None, queue: MessageQueue, message_id: str) -> SendResult:
    fields = fields or {}
    queue_id = read_number(fields, "queueId", queue.queue_id)
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        STORED_CODES[code],
        message_id,
        queue,
        read_number(fields, "queueOffset", -1),
        fields.get("msgId", ""),
        fields.get("transactionId"),
        fields.get("recallHandle"),
    )


def queue_for_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a sharding key, the same that a Java producer's hash selector picks."""
    return queues[abs(java_hash(key)) % len(queues)]
