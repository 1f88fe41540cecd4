"""Messages of a topic by time, and what became of one: who consumed it, and its retries."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate

from twinlog.base.system_names import dlq_topic, retry_topic
from twinlog.client import Admin, MessageQueue, NoRoute, PullStatus
from twinlog.client.admin.messages import TOOLS_GROUP
from twinlog.client.consuming.pulling import subscription_of
from twinlog.wire.message import Message

COUNT_MAX = 500
_PULL_COUNT = 32
_PULLS_MAX = COUNT_MAX + 32  # of one queue: of large messages a pull brings one
BYTES_MAX = 64 * 1024 * 1024  # of all bodies together


@dataclass(frozen=True, slots=True)
class Found:
    """The newest messages of a range of time."""

    messages: tuple[tuple[MessageQueue, Message], ...]
    is_cut: bool  # there are more


@dataclass(frozen=True, slots=True)
class Consumption:
    """What one group made of a message."""

    group: str
    committed: int | None
    is_consumed: bool
    retries: tuple[Message, ...]
    dead_letter: Message | None


async def messages_between(admin: Admin, topic: str, begin_ms: int, end_ms: int, count_max: int) -> Found:
    """The newest `count_max` messages that were stored from `begin_ms` to `end_ms`, the newest first."""
    count_max = min(count_max, COUNT_MAX)
    found: list[tuple[MessageQueue, Message]] = []
    is_cut = False
    for queue in (await admin.session.route(topic)).readable:
        calls = admin.queue_calls
        first = await calls.offset_at(queue, begin_ms)
        end = min(await calls.max_offset(queue), await calls.offset_at(queue, end_ms, upper=True) + 1)
        start = max(first, end - count_max)
        is_cut |= start > first
        read = await _read(admin, queue, start, end)
        found += [(queue, one) for one in read if begin_ms <= one.store_timestamp <= end_ms]
        found, is_less = _newest(found, count_max)
        is_cut |= is_less
    return Found(tuple(found), is_cut)


def _newest(
    rows: list[tuple[MessageQueue, Message]], count_max: int
) -> tuple[list[tuple[MessageQueue, Message]], bool]:
    """The newest of them first, and whether some had to be left out: they are too many, or too large together."""
    rows = sorted(rows, key=lambda row: (row[1].store_timestamp, row[1].queue_offset), reverse=True)
    sizes = accumulate(len(message.body) for _, message in rows)
    kept = max(1, sum(size <= BYTES_MAX for size in sizes))
    kept = min(kept, count_max)
    return rows[:kept], kept < len(rows)


async def _read(admin: Admin, queue: MessageQueue, start: int, end: int) -> list[Message]:
    """From `start` on; of very many bytes the newest."""
    found: deque[Message] = deque()
    size = 0
    wanted = subscription_of(queue.topic, "*")
    for _ in range(_PULLS_MAX):
        if start >= end:
            break
        count = min(_PULL_COUNT, end - start)
        result = await admin.queue_calls.pull(TOOLS_GROUP, queue, start, wanted, count_max=count)
        if result.status is PullStatus.NO_NEW or result.next_offset <= start:
            break
        read = [one for one in result.messages if one.queue_offset < end]
        found += read
        size += sum(len(one.body) for one in read)
        while size > BYTES_MAX and len(found) > 1:
            size -= len(found.popleft().body)
        start = result.next_offset
    return list(found)


async def consumptions(admin: Admin, queue: MessageQueue, message: Message) -> list[Consumption]:
    """Of every group that reads the topic."""
    rows: list[Consumption] = []
    for group in await admin.groups_of(queue.topic):
        committed = await admin.queue_calls.committed(group, queue)
        retries = await _by_id(admin, retry_topic(group), message.message_id)
        dead = await _by_id(admin, dlq_topic(group), message.message_id)
        is_consumed = committed is not None and committed > message.queue_offset
        rows.append(Consumption(group, committed, is_consumed, tuple(retries), dead[-1] if dead else None))
    return rows


async def _by_id(admin: Admin, topic: str, message_id: str) -> list[Message]:
    """A retry keeps the id of its message; a topic that does not exist has none."""
    try:
        return await admin.messages_by_unique_key(topic, message_id, begin_ms=0)
    except NoRoute:
        return []
