"""Lists of messages that are sent together: which may, in which requests, and one result of several. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from twinlog.client.errors import BadMessage
from twinlog.client.sending.draft import BatchItem
from twinlog.client.sending.outgoing import Outgoing, SendResult, SendStatus


def check_batch(messages: Sequence[Outgoing]) -> None:
    """Raise BadMessage for messages that cannot be sent together."""
    if not messages:
        raise BadMessage("a batch needs at least one message")
    topic = messages[0].topic
    for message in messages:
        if message.topic != topic:
            raise BadMessage(f"a batch has one topic, this one has {topic!r} and {message.topic!r}")
        if message.is_delayed:
            raise BadMessage(f"message for {topic!r} is delayed, which is not possible in a batch")


def split_batch(items: Sequence[BatchItem], bytes_max: int) -> Iterator[Sequence[BatchItem]]:
    """`items` in their order, in as few parts as possible of at most `bytes_max` each.

    An item that is larger by itself is a part of its own.
    """
    start = size = 0
    for at, item in enumerate(items):
        own = item.request_bytes
        if size + own > bytes_max and at > start:
            yield items[start:at]
            start, size = at, 0
        size += own
    yield items[start:]


def join_results(results: Sequence[SendResult]) -> SendResult:
    """One result for parts that were stored one after another: the place of the first, the ids of all."""
    if len(results) == 1:
        return results[0]
    first = results[0]
    worst = next((each for each in results if each.status is not SendStatus.OK), first)
    return SendResult(
        worst.status,
        ",".join(each.message_id for each in results),
        first.queue,
        first.queue_offset,
        ",".join(each.offset_message_id for each in results),
        first.transaction_id,
        remark=worst.remark,
    )


def split_result(result: SendResult, ids: Sequence[str]) -> list[SendResult]:
    """The results of the messages with these ids, which one request stored, each with its own offset and place."""
    count, places = len(ids), result.offset_message_id.split(",")
    if len(places) != count:  # an inner batch is one record, with one place
        places = [result.offset_message_id] * count
    return [
        replace(result, message_id=ids[i], queue_offset=result.queue_offset + i, offset_message_id=places[i])
        for i in range(count)
    ]
