"""A send request but for its queue and number: all that an attempt at another broker sends again.

`wire_properties` of a message defines its properties; `properties_text` writes them at once as text, which is several
times faster, and a property test holds both equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.errors import BadMessage
from twinlog.client.sending.outgoing import DELAY_LEVEL_MAX, Outgoing, check_message
from twinlog.client.sending.replies import REPLY
from twinlog.wire import properties as names
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode
from twinlog.wire.compression import compress
from twinlog.wire.errors import PropertiesError
from twinlog.wire.headers import SendHeaderV2
from twinlog.wire.properties import NAME_END, PAIR_END, check_pairs, encode_properties

# What a broker adds to body, properties and topic when it stores an element as a record: 91 bytes of head, 24 more for
# IPv6, the lengths, and the separator after the properties. Java compares the sum of a batch's records with the limit.
_RECORD_BYTES = 128
_SURELY_SHORT = names.PROPERTIES_BYTES_MAX // 4  # so many characters never have more bytes than the limit


@dataclass(frozen=True, slots=True)
class SendContext:
    """What all sends of one producer share."""

    group: str
    new_topic_queues: int = 4
    compress_above_bytes: int = 4096
    compression: str = "zlib"
    compression_level: int = 5
    message_bytes_max: int = 4 * 1024 * 1024
    delay_level_max: int = DELAY_LEVEL_MAX


@dataclass(slots=True)
class SendDraft:
    """One request; `send_header` and `SendFrames` complete it for a queue."""

    code: int
    topic: str
    message_id: str  # several joined with "," for a batch
    properties: str  # in text form
    body: bytes
    born_ms: int
    sys_flag: int = 0
    flag: int = 0
    batch: bool = False


def draft_message(
    message: Outgoing, new_id: str, context: SendContext, now_ms: int, *, sys_flag: int = 0, half_of: str = ""
) -> SendDraft:
    """The request that sends `message`; `half_of` names the producer group of a transaction's half message."""
    body = check_message(message, context.message_bytes_max, context.delay_level_max)
    given = message.system_properties
    if half_of or names.UNIQ_KEY in given:
        properties = message.wire_properties()
        if half_of:
            properties |= {names.TRAN_MSG: "true", names.PGROUP: half_of}
        new_id = properties.setdefault(names.UNIQ_KEY, new_id)
        text = _text(properties)
    else:
        text = properties_text(message, new_id)
    if len(body) >= context.compress_above_bytes > 0:
        packed, bits = compress(body, context.compression, context.compression_level)
        if len(packed) < len(body):
            body, sys_flag = packed, sys_flag | bits
    is_reply = bool(given) and given.get(names.MSG_TYPE) == REPLY
    code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2
    return SendDraft(code, message.topic, new_id, text, body, now_ms, sys_flag, message.flag)


@dataclass(slots=True)
class BatchItem:
    """One message of a batch, encoded but for its place."""

    message: Outgoing
    message_id: str
    element: BatchElement

    @property
    def request_bytes(self) -> int:
        """How much of a request's limit it takes: at least as much as its record in the broker's log."""
        return _RECORD_BYTES + len(self.element.body) + len(self.element.properties) + len(self.message.topic.encode())


def batch_item(message: Outgoing, new_id: str, bytes_max: int) -> BatchItem:
    """`message` for a batch, with the unique key that it has, else `new_id`."""
    body = check_message(message, bytes_max)
    unique_id = message.system_properties.get(names.UNIQ_KEY) or new_id
    return BatchItem(message, unique_id, BatchElement(body, properties_text(message, unique_id).encode(), message.flag))


def draft_batch(items: Sequence[BatchItem], now_ms: int) -> SendDraft:
    """The request that sends `items`, all of one topic; each keeps its own unique key."""
    # The wrapper carries no unique key: a 5.3.3 broker would write it over those of the messages.
    waits = all(item.message.wait_stored for item in items)
    first = items[0].message
    return SendDraft(
        RequestCode.SEND_BATCH_MESSAGE,
        first.topic,
        ",".join([item.message_id for item in items]),
        f"{names.WAIT}{NAME_END}{'true' if waits else 'false'}{PAIR_END}",
        encode_batch([item.element for item in items]),
        now_ms,
        flag=first.flag,
        batch=True,
    )


def send_header(draft: SendDraft, queue: MessageQueue, context: SendContext) -> SendHeaderV2:
    """The header that sends `draft` to `queue`."""
    return SendHeaderV2(
        producer_group=context.group,
        topic=draft.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=context.new_topic_queues,
        queue_id=queue.queue_id,
        sys_flag=draft.sys_flag,
        born_timestamp=draft.born_ms,
        flag=draft.flag,
        properties=draft.properties,
        reconsume_times=0,
        unit_mode=False,
        batch=draft.batch,
        broker_name=queue.broker_name,
    )


def properties_text(message: Outgoing, unique_id: str) -> str:
    """The properties of `message` with its unique key, in text form; BadMessage for what it cannot carry."""
    given, keys = message.properties, names.KEY_SEPARATOR.join(message.keys)
    if message.system_properties or message.is_delayed or names.SHARDING_KEY in given:
        return _text(message.wire_properties() | {names.UNIQ_KEY: unique_id})
    text, expected = "", 2 + bool(message.tags) + bool(keys) + bool(message.sharding_key)
    for name, value in given.items():
        if value != "":
            text += f"{name}{NAME_END}{value}{PAIR_END}"
            expected += 1
    if message.tags:
        text += f"TAGS{NAME_END}{message.tags}{PAIR_END}"
    if keys:
        text += f"KEYS{NAME_END}{keys}{PAIR_END}"
    if message.sharding_key:
        text += f"{names.SHARDING_KEY}{NAME_END}{message.sharding_key}{PAIR_END}"
    wait = "true" if message.wait_stored else "false"
    text += f"WAIT{NAME_END}{wait}{PAIR_END}UNIQ_KEY{NAME_END}{unique_id}{PAIR_END}"
    pairs = text.count(PAIR_END)
    # A separator inside a name or value, an empty name, or a great length: the definition has the rules.
    if pairs != expected or text.count(NAME_END) != pairs or len(text) > _SURELY_SHORT or "" in given:
        return _text(message.wire_properties() | {names.UNIQ_KEY: unique_id})
    return text


def _text(properties: dict[str, str]) -> str:
    try:
        check_pairs(properties)
    except PropertiesError as error:
        raise BadMessage(str(error)) from error
    data = encode_properties(properties)
    if len(data) > names.PROPERTIES_BYTES_MAX:
        raise BadMessage(f"properties of {len(data)} bytes are above the limit of {names.PROPERTIES_BYTES_MAX}")
    return data.decode()
