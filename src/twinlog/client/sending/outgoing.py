"""A message on its way to a broker, and what comes back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.answer_fields import read_number
from twinlog.client.errors import BadMessage
from twinlog.client.name_rules import check_topic
from twinlog.wire import properties as names
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import ResponseCode
from twinlog.wire.compression import compress
from twinlog.wire.errors import PropertiesError
from twinlog.wire.headers import SendHeaderV2
from twinlog.wire.java_text import java_hash
from twinlog.wire.properties import check_pairs, encode_properties


class SendStatus(Enum):
    """What the broker promises about a stored message."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT  # stored, its flush is not confirmed
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT  # stored, no replica confirmed it
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE  # stored, there is no replica


STORED_CODES = tuple(status.value for status in SendStatus)


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
        return bool(self.delay_level or self.delay_ms or self.deliver_at_ms)


def body_bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)


def check_message(message: Outgoing, bytes_max: int) -> None:
    """Raise BadMessage for a message that a broker would refuse."""
    check_topic(message.topic)
    size = len(body_bytes(message.body))
    if size == 0:
        raise BadMessage(f"message for {message.topic!r} has no body, and RocketMQ stores no empty messages")
    if size > bytes_max:
        raise BadMessage(f"message for {message.topic!r} has {size} bytes, the limit is {bytes_max}; split it")


def check_batch(messages: Sequence[Outgoing], bytes_max: int) -> None:
    """Raise BadMessage for messages that cannot be sent in one request."""
    if not messages:
        raise BadMessage("a batch needs at least one message")
    for message in messages:
        check_message(message, bytes_max)
        if message.topic != messages[0].topic:
            raise BadMessage(f"a batch has one topic, this one has {messages[0].topic!r} and {message.topic!r}")
        if message.is_delayed:
            raise BadMessage(f"message for {message.topic!r} is delayed, which is not possible in a batch")
    size = sum(len(body_bytes(message.body)) for message in messages)
    if size > bytes_max:
        raise BadMessage(f"a batch of {size} bytes is above {bytes_max}; send it in parts")


@dataclass(frozen=True, slots=True)
class SendContext:
    """What all sends of one producer share."""

    group: str
    new_topic_queues: int = 4
    compress_above_bytes: int = 4096
    compression: str = "zlib"
    compression_level: int = 5


def encode_send(
    message: Outgoing,
    queue: MessageQueue,
    properties: dict[str, str],
    context: SendContext,
    now_ms: int,
    *,
    sys_flag: int = 0,
) -> tuple[SendHeaderV2, bytes]:
    """Header and body that send `message` to `queue`."""
    body = body_bytes(message.body)
    if len(body) >= context.compress_above_bytes > 0:
        packed, bits = compress(body, context.compression, context.compression_level)
        if len(packed) < len(body):
            body, sys_flag = packed, sys_flag | bits
    return _header(message, queue, _text(properties), context, now_ms, sys_flag), body


def encode_send_batch(
    messages: Sequence[Outgoing], ids: Iterable[str], queue: MessageQueue, context: SendContext, now_ms: int
) -> tuple[SendHeaderV2, bytes]:
    """Header and body that send `messages` in one request; each keeps its own unique key."""
    elements = []
    for message, unique_id in zip(messages, ids, strict=True):
        properties = {**message.wire_properties(), names.UNIQ_KEY: unique_id}
        elements.append(BatchElement(body_bytes(message.body), _text(properties).encode(), message.flag))
    # The wrapper carries no unique key: a 5.3.3 broker would write it over those of the messages.
    wrapper = _text({names.WAIT: "true" if all(m.wait_stored for m in messages) else "false"})
    return _header(messages[0], queue, wrapper, context, now_ms, 0, batch=True), encode_batch(elements)


def read_send_answer(code: int, fields: dict[str, str] | None, queue: MessageQueue, message_id: str) -> SendResult:
    fields = fields or {}
    return SendResult(
        status=SendStatus(code),
        message_id=message_id,
        queue=MessageQueue(queue.topic, queue.broker_name, read_number(fields, "queueId", queue.queue_id)),
        queue_offset=read_number(fields, "queueOffset", -1),
        offset_message_id=fields.get("msgId", ""),
        transaction_id=fields.get("transactionId"),
        recall_handle=fields.get("recallHandle"),
    )


def queue_for_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a sharding key, the same that a Java producer's hash selector picks."""
    return queues[abs(java_hash(key)) % len(queues)]


def _text(properties: dict[str, str]) -> str:
    try:
        check_pairs(properties)
    except PropertiesError as error:
        raise BadMessage(str(error)) from error
    data = encode_properties(properties)
    if len(data) > names.PROPERTIES_BYTES_MAX:
        raise BadMessage(f"properties of {len(data)} bytes are above the limit of {names.PROPERTIES_BYTES_MAX}")
    return data.decode()


def _header(
    message: Outgoing,
    queue: MessageQueue,
    properties: str,
    context: SendContext,
    now_ms: int,
    sys_flag: int,
    batch: bool = False,
) -> SendHeaderV2:
    return SendHeaderV2(
        producer_group=context.group,
        topic=message.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=context.new_topic_queues,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=now_ms,
        flag=message.flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
        broker_name=queue.broker_name,
    )
