"""Requests about one queue: its offsets, a group's progress in it, its messages."""

import asyncio

from twinlog.client.answer_fields import read_number
from twinlog.client.consuming.pulling import PULL_CODES, PullResult, pull_header, read_pull_answer
from twinlog.client.routing.session import Session
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue, SubscriptionData
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.headers import (
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    SendBackHeader,
    UpdateOffsetHeader,
)
from twinlog.wire.message import Message

PULL_GRACE_MS = 15_000  # how much later than asked a held pull may be answered


class QueueCalls:
    """Asks the broker that holds a queue."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._suggested: dict[MessageQueue, int] = {}  # broker id to pull from, as the last answer suggested
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
            self._suggested.pop(queue, None)  # the next pull goes to the master
            raise
        result = read_pull_answer(answer, subscription, self._session.options.decompressed_bytes_max)
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
        return read_number(answer.fields, "timestamp", -1)

    async def committed(self, group: str, queue: MessageQueue, *, exact: bool = True) -> int | None:
        """The offset that the group has committed in `queue`; None if it never committed there.

        Without `exact` a broker answers 0 for a new group while the queue's first message is still in memory, so that
        consumers of a topic that is being created miss nothing.
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
        """Save that the group has consumed everything before `offset`; returns once the broker has it.

        Java: the first commit for a topic and group creates their map without a lock, so that two first commits at the
        same time may lose one. Until one is acknowledged, the commits of a topic and broker are sent one by one.
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

    async def send_back(
        self, group: str, queue: MessageQueue, message: Message, delay_level: int, retries_max: int = -1
    ) -> None:
        """Ask the queue's broker to deliver `message` to the group again later, or to dead-letter it.

        A `delay_level` of 0 lets the broker choose the delay, below 0 means dead-letter now. A `retries_max` below 0
        leaves the number of attempts to the configuration of the group.
        """
        header = SendBackHeader(
            offset=message.physical_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.properties.get(names.ORIGIN_MESSAGE_ID) or message.offset_message_id,
            origin_topic=message.topic,
            max_reconsume_times=retries_max if retries_max >= 0 else None,
        )
        await self._session.ask_broker(queue, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    async def _ask(self, queue: MessageQueue, code: int) -> Command:
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._session.ask_broker(queue, code, header)


def _offset(answer: Command) -> int:
    return read_number(answer.fields, "offset")
