"""What a user gives to be sent, and what comes back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from twinlog.client.answer_fields import read_number
from twinlog.client.errors import BadMessage
from twinlog.client.name_rules import check_topic
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import ResponseCode
from twinlog.wire.java_text import java_hash

if TYPE_CHECKING:
    from twinlog.wire.command import Command


class SendStatus(Enum):
    """What the broker promises about a stored message."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT  # stored, its flush is not confirmed
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT  # stored, no replica confirmed it
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE  # stored, there is no replica


_DELAYS = frozenset({names.DELAY, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC, names.TIMER_DELIVER_MS})
DELAY_LEVEL_MAX = 18  # of RocketMQ's default messageDelayLevel
DEFAULT_REGION = "DefaultRegion"  # of a broker that does not say
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
    recall_handle: str | None = None  # of a timer message; see Producer.recall
    region_id: str = DEFAULT_REGION  # of the broker
    trace_on: bool = True  # whether the broker wants traces of this message
    remark: str = ""  # why the status is not OK, if the broker says so


@dataclass(slots=True, init=False)
class Outgoing:
    """A message to send. Text bodies are sent as UTF-8.

    `keys` is what the message can be looked up by: a list, or a str, which is one key. At most one of `delay_level`
    (1 to 18, the broker's list of delays), `delay_ms` and `deliver_at_ms` (5.x timer messages) may be set. Messages
    with the same `sharding_key` go to the same queue, in order. With `wait_stored` the broker answers after flush and
    replication as it is set up. `properties` are the user's; names that RocketMQ reserves stand in
    `system_properties`, for programs that send a stored message again. None means the same as a member left out.
    """

    topic: str
    body: bytes | str
    tags: str
    keys: list[str]
    properties: dict[str, str]
    sharding_key: str
    delay_level: int
    delay_ms: int
    deliver_at_ms: int
    flag: int
    wait_stored: bool
    system_properties: dict[str, str]

    def __init__(
        self,
        topic: str,
        body: bytes | str,
        tags: str | None = "",
        keys: str | Iterable[str] | None = (),
        properties: dict[str, str] | None = None,
        sharding_key: str | None = "",
        delay_level: int = 0,
        delay_ms: int = 0,
        deliver_at_ms: int = 0,
        flag: int = 0,
        wait_stored: bool = True,
        system_properties: dict[str, str] | None = None,
    ) -> None:
        self.topic, self.body, self.flag, self.wait_stored = topic, body, flag, wait_stored
        self.tags = "" if tags is None else tags
        self.keys = ([keys] if keys else []) if isinstance(keys, str) else list(keys or ())
        self.properties = {} if properties is None else properties
        self.sharding_key = "" if sharding_key is None else sharding_key
        self.delay_level, self.delay_ms, self.deliver_at_ms = delay_level, delay_ms, deliver_at_ms
        self.system_properties = {} if system_properties is None else system_properties

    def wire_properties(self) -> dict[str, str]:
        """All properties of the message by their names on the wire."""
        timing = {
            names.DELAY: self.delay_level,
            names.TIMER_DELAY_MS: self.delay_ms,
            names.TIMER_DELIVER_MS: self.deliver_at_ms,
        }
        if sum(1 for value in timing.values() if value) > 1:
            raise BadMessage(f"message for {self.topic!r} is delayed in two ways ({timing}); set one of them")
        own = {
            names.TAGS: self.tags,
            names.KEYS: names.KEY_SEPARATOR.join(self.keys),
            names.SHARDING_KEY: self.sharding_key,
            **{name: str(value) for name, value in timing.items() if value},
            names.WAIT: "true" if self.wait_stored else "false",
        }
        all_names = {**self.properties, **self.system_properties, **own}
        return {name: value for name, value in all_names.items() if value != ""}

    @property
    def is_delayed(self) -> bool:
        """Whether consumers get it later, by a member of its own or by a property, as one that is sent on may have."""
        if self.delay_level or self.delay_ms or self.deliver_at_ms:
            return True
        given = self.system_properties
        if not given or _DELAYS.isdisjoint(given):
            return False
        return any(given.get(name, "") not in ("", "0") for name in _DELAYS)


def body_bytes(body: bytes | str) -> bytes:
    """Text as UTF-8; BadMessage for what is neither text nor bytes: bytes(3) would be three zeros."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    try:
        return bytes(memoryview(body))
    except TypeError:
        kind = type(body).__name__
        raise BadMessage(
            f"the body of a message is a {kind}: give bytes or text, for example json.dumps(...)"
        ) from None


def check_message(message: Outgoing, bytes_max: int, delay_level_max: int = DELAY_LEVEL_MAX) -> bytes:
    """The body's bytes; BadMessage for a message that a broker would refuse or change."""
    check_topic(message.topic)
    if not isinstance(message.tags, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadMessage(f"tags={message.tags!r} of a message for {message.topic!r} is not text, so convert it")
    if message.properties:
        _check_properties(message.topic, message.properties)
    if message.keys:
        _check_keys(message.topic, message.keys)
    if message.delay_level or message.delay_ms or message.deliver_at_ms:
        _check_delay(message, delay_level_max)
    body = body_bytes(message.body)
    size = len(body)
    if size == 0:
        raise BadMessage(f"message for {message.topic!r} has no body, and RocketMQ stores no empty messages")
    if size > bytes_max:
        raise BadMessage(f"message for {message.topic!r} has {size} bytes, the limit is {bytes_max}; split it")
    return body


def _check_properties(topic: str, properties: dict[str, str]) -> None:
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadMessage(
                f"property {name!r}={value!r} of a message for {topic!r} is not text: properties are str, so convert it"
            )
    if not names.RESERVED.isdisjoint(properties):
        taken = ", ".join(sorted(names.RESERVED & properties.keys()))
        raise BadMessage(
            f"RocketMQ reserves the property {taken}, which a message for {topic!r} sets; choose another name, or use "
            "the member of Outgoing that has this meaning (tags, keys, delay_level, ...)"
        )


def _check_keys(topic: str, keys: list[str]) -> None:
    for key in keys:
        if not isinstance(key, str) or not key or names.KEY_SEPARATOR in key:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadMessage(
                f"key {key!r} of a message for {topic!r} is not a word: keys are not empty and have no space, "
                "which separates them in the message; give several keys as a list"
            )


def _check_delay(message: Outgoing, level_max: int) -> None:
    if not 0 <= message.delay_level <= level_max:
        raise BadMessage(
            f"delay level {message.delay_level} of a message for {message.topic!r} is outside 1..{level_max}; a broker "
            "with a longer messageDelayLevel needs ProducerOptions(delay_level_max=...)"
        )
    if message.delay_ms < 0 or message.deliver_at_ms < 0:
        text = f"delay_ms={message.delay_ms}, deliver_at_ms={message.deliver_at_ms}"
        raise BadMessage(f"message for {message.topic!r} has a delay below 0 ({text}); give milliseconds from now on")


def read_send_answer(answer: "Command", queue: MessageQueue, message_id: str) -> SendResult:
    fields = answer.fields or {}
    queue_id = read_number(fields, "queueId", queue.queue_id)
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        STORED_CODES[answer.code],
        message_id,
        queue,
        read_number(fields, "queueOffset", -1),
        fields.get("msgId", ""),
        fields.get("transactionId"),
        fields.get("recallHandle"),
        fields.get(names.MSG_REGION) or DEFAULT_REGION,
        fields.get(names.TRACE_ON) != "false",
        answer.remark or "",
    )


def queue_for_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a sharding key, the same that a Java producer's hash selector picks."""
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadMessage(f"sharding_key={key!r} is not text, so convert it")
    return queues[abs(java_hash(key)) % len(queues)]
