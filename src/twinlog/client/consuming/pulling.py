"""One pull: the request for messages of a queue, and the result in its answer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from twinlog.client.answer_fields import read_number
from twinlog.telemetry.log import get_logger
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import MessageQueue, SubscriptionData
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.compression import BODY_BYTES_MAX, decompress
from twinlog.wire.errors import BodyError, CompressionError
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import PullHeader, PullResponseHeader
from twinlog.wire.message import Message, decode_messages
from twinlog.wire.properties import decode_properties
from twinlog.wire.values import sys_flag
from twinlog.wire.values.filter_expression import parse_tags, tag_codes

log = get_logger(__name__)
TAG, SQL92 = "TAG", "SQL92"


class PullStatus(Enum):
    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED  # continue at next_offset


PULL_CODES = tuple(status.value for status in PullStatus)


@dataclass(frozen=True, slots=True)
class PullResult:
    """Messages of one queue, and the offset of the next pull."""

    status: PullStatus
    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0


def subscription_of(topic: str, expression: str, expression_type: str = TAG, version: int = 0) -> SubscriptionData:
    """The subscription as heartbeats carry it; an empty expression means every message."""
    if expression_type != TAG:
        return SubscriptionData(
            topic=topic, sub_string=expression, expression_type=expression_type, sub_version=version
        )
    tags = parse_tags(expression)
    return SubscriptionData(
        topic=topic,
        sub_string="*" if tags is None else expression,
        tags_set=sorted(tags or ()),
        code_set=sorted(tag_codes(tags)) if tags else [],
        sub_version=version,
    )


def pull_header(
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: SubscriptionData,
    *,
    count_max: int = 32,
    wait_ms: int = 0,
    send_subscription: bool = False,
    large: bool = False,
) -> PullHeader:
    """The request for messages from `offset` on; with `wait_ms` the broker holds it until some arrive.

    With `large`, a Twinlog broker returns up to 1 MiB; a Java broker keeps to its 32 messages.
    """
    flags = sys_flag.PULL_SUSPEND if wait_ms else 0
    flags |= sys_flag.PULL_SUBSCRIPTION if send_subscription else 0
    return PullHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count_max,
        sys_flag=flags,
        commit_offset=0,
        suspend_timeout_millis=wait_ms,
        subscription=subscription.sub_string if send_subscription else None,
        sub_version=subscription.sub_version,
        expression_type=subscription.expression_type,
        broker_name=queue.broker_name,
        large_answer=large or None,
    )


def read_pull_answer(answer: Command, subscription: SubscriptionData, bytes_max: int = BODY_BYTES_MAX) -> PullResult:
    """The result in `answer`; messages whose tag only has the hash of a wanted tag are left out."""
    header = decode_fields(PullResponseHeader, answer.fields)
    has_messages = answer.code == ResponseCode.SUCCESS and answer.body
    messages = unwrap(decode_messages(answer.body or b""), bytes_max) if has_messages else []
    if subscription.expression_type == TAG and subscription.tags_set:
        wanted = set(subscription.tags_set)
        messages = [message for message in messages if message.tags in wanted]
    return PullResult(
        PullStatus(answer.code),
        messages,
        read_number(answer.fields, "nextBeginOffset"),
        header.min_offset or 0,
        header.max_offset or 0,
        header.suggest_which_broker_id or 0,
    )


def unwrap(messages: Iterable[Message], bytes_max: int = BODY_BYTES_MAX) -> list[Message]:
    """The messages as they were sent: decompressed, and those of an inner batch one by one."""
    result = []
    for message in messages:
        inflate(message, bytes_max)
        inner = sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP
        if message.sys_flag & inner != inner:
            result.append(message)
            continue
        try:
            elements = decode_batch(message.body)
        except BodyError as error:
            log.warning("an inner batch cannot be read", id=message.offset_message_id, error=str(error))
            continue
        for i, element in enumerate(elements):
            result.append(
                replace(
                    message,
                    body=element.body,
                    flag=element.flag,
                    properties=decode_properties(element.properties),
                    queue_offset=message.queue_offset + i,
                    sys_flag=message.sys_flag & ~inner,
                )
            )
    return result


def inflate(message: Message, bytes_max: int = BODY_BYTES_MAX) -> None:
    """Decompress the body; one that is damaged, or grows beyond `bytes_max`, stays as it is, with its flag."""
    if message.sys_flag & sys_flag.COMPRESSED:
        try:
            message.body = decompress(message.body, message.sys_flag, bytes_max)
        except CompressionError as error:
            log.warning("a body does not inflate", id=message.offset_message_id, error=str(error))
        else:
            message.sys_flag &= ~(sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK)
