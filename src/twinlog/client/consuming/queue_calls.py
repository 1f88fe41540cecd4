"""Questions about one queue: its offsets, a group's place in it, its messages."""

import asyncio

from twinlog.client.answers import number
from twinlog.client.consuming.pulling import PULL_CODES, PullResult, pull_header, read_pull_answer
from twinlog.client.routing.session import Session
from twinlog.wire.bodies import MessageQueue, SubscriptionData
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.headers import QueryOffsetHeader, QueueHeader, SearchOffsetHeader, UpdateOffsetHeader

PULL_GRACE_MS = 15_000  # how much later than asked a held pull may be answered


class QueueCalls:
    """Asks the broker that holds a queue."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._suggested: dict[MessageQueue, int] = {}  # broker id to pull from, as the last answer said
        self._begun: set[tuple[str, str, str]] = set()  # group, topic, broker with an acknowledged commit
        self._first_commits: dict[tuple[str, str, str], asyncio.Lock] = {}

    async def pull(
        self,
        group: str,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        *,
        count_max: int = 32,
        wait_ms: int = 0,
        send_subscription: bool = True,
    ) -> PullResult:
        """Messages of `queue` from `offset` on, from the replica that the broker suggested if there is one."""
        header = pull_header(
            group,
            queue,
            offset,
            subscription,
            count_max=count_max,
            wait_ms=wait_ms,
            send_subscription=send_subscription,
        )
        broker_id = self._suggested.get(queue, 0)
        timeout_ms = max(wait_ms + PULL_GRACE_MS, self._session.options.request_timeout_ms)
        try:
            answer = await self._session.ask_broker(
                queue, RequestCode.PULL_MESSAGE, header, broker_id=broker_id, timeout_ms=timeout_ms, accept=PULL_CODES
            )
        except Exception:
            self._suggested.pop(queue, None)  # the master decides afresh
            raise
        result = read_pull_answer(answer, subscription)
        self._suggested[queue] = result.suggested_broker_id
        return result

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return _offset(await self._ask(queue, RequestCode.GET_MAX_OFFSET))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return _offset(await self._ask(queue, RequestCode.GET_MIN_OFFSET))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The first offset stored at or after the time; with `upper` the last one at or before it."""
        header = SearchOffsetHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type="UPPER" if upper else "LOWER",
        )
        answer = await self._session.ask_broker(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return _offset(answer)

    async def earliest_time_ms(self, queue: MessageQueue) -> int:
        """When the oldest message was stored; -1 if there is none."""
        answer = await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME)
        return number(answer.fields, "timestamp", -1)

    async def committed(self, group: str, queue: MessageQueue, *, exact: bool = True) -> int | None:
        """Where the group goes on in `queue`; None if it never committed there.

        Without `exact` a broker says 0 for a new group while the queue's first message is still in
        memory: consumers of a topic that is being created then miss nothing.
        """
        header = QueryOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if exact else None,
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._session.ask_broker(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=accept)
        return _offset(answer) if answer.code == ResponseCode.SUCCESS else None

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Note that the group has consumed everything before `offset`; returns once the broker has it.

        Java: the first commit for a topic and group makes their map, without a lock, so that two first commits at the
        same time may lose one. Until one is acknowledged, those of a topic and broker follow one another.
        """
        header = UpdateOffsetHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        key = (group, queue.topic, queue.broker_name)
        if key in self._begun:
            await self._session.ask_broker(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            return
        async with self._first_commits.setdefault(key, asyncio.Lock()):
            await self._session.ask_broker(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            self._begun.add(key)

    async def _ask(self, queue: MessageQueue, code: int) -> Command:
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._session.ask_broker(queue, code, header)


def _offset(answer: Command) -> int:
    return number(answer.fields, "offset")
