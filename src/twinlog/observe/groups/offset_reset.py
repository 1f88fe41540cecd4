"""Moving a group: what each queue's offset becomes, shown before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.client import Admin, BadArgument, MessageQueue

NEWEST, OLDEST, TIME, OFFSET = "newest", "oldest", "time", "offset"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where a group goes: to the newest or oldest message, to a time, or to an offset of one queue."""

    kind: str
    timestamp_ms: int = 0
    queue: MessageQueue | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ResetRow:
    """One queue before and after."""

    queue: MessageQueue
    committed: int | None  # None: the group has no offset here
    becomes: int
    low: int
    high: int

    @property
    def change(self) -> int | None:
        """Messages that are skipped, or consumed again if it is below 0."""
        return None if self.committed is None else self.becomes - self.committed


async def preview(admin: Admin, group: str, topic: str, target: ResetTarget) -> list[ResetRow]:
    """What `apply` would do now; it changes nothing."""
    queues = (await admin.session.route(topic)).readable
    if target.kind == OFFSET:
        if target.queue not in queues:
            raise BadArgument(f"topic {topic!r} has no queue {target.queue}")
        queues = (target.queue,)
    calls, rows = admin.queue_calls, list[ResetRow]()
    for queue in sorted(queues):
        low, high = await calls.min_offset(queue), await calls.max_offset(queue)
        becomes = high
        if target.kind == OLDEST:
            becomes = low
        elif target.kind == TIME:
            becomes = await calls.offset_at(queue, target.timestamp_ms)
        elif target.kind == OFFSET:
            becomes = target.offset
        if not low <= becomes <= high:
            raise BadArgument(f"offset {becomes} is not in queue {queue.queue_id}, which has {low} to {high}")
        rows.append(ResetRow(queue, await calls.committed(group, queue), becomes, low, high))
    return rows


async def apply(admin: Admin, group: str, topic: str, target: ResetTarget) -> dict[MessageQueue, int]:
    """Move the group; the new offsets as the brokers report them."""
    if target.kind == OFFSET:
        assert target.queue is not None
        address = (await admin.topic_masters(topic)).get(target.queue.broker_name)
        if address is None:
            raise BadArgument(f"broker {target.queue.broker_name!r} has no master now")
        return await admin.reset_offset(
            topic, group, 0, address=address, queue_id=target.queue.queue_id, offset=target.offset
        )
    timestamp_ms = {NEWEST: -1, OLDEST: 0}.get(target.kind, target.timestamp_ms)
    return await admin.reset_offset(topic, group, timestamp_ms)
