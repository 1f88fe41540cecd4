"""Gathers small sends into batches, as Java's producers do with `autoBatch`.

Messages of one topic, tag, queue (when it is fixed), wait rule and timeout form a group. A group leaves as one batch
when its bodies have more than `batch_bytes_max`, or `batch_hold_ms` after its first message. Every sender gets the
result of its own message, or the error of the batch.

Sent alone, as without this module: what no batch may hold (delayed messages, retries, replies, halves of
transactions), a message that is larger than a group may be, and everything while `batch_total_bytes_max` is reached, so
that memory has a limit. The group that it would have joined leaves before it, so that the order stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client.errors import ClientClosed
from twinlog.client.sending.batches import split_result
from twinlog.client.sending.draft import BatchItem
from twinlog.client.sending.outgoing import Outgoing, SendResult
from twinlog.client.sending.producer_options import ProducerOptions
from twinlog.client.tasks import TaskSet
from twinlog.wire import properties as names
from twinlog.wire.bodies import MessageQueue

SendAlone = Callable[[Outgoing, MessageQueue | None, int | None], Awaitable[SendResult]]
SendTogether = Callable[[Sequence[BatchItem], MessageQueue | None, int | None], Awaitable[SendResult]]
MakeItem = Callable[[Outgoing], BatchItem]
_Key = tuple[str, MessageQueue | None, bool, str, int | None]


def may_share_a_batch(message: Outgoing) -> bool:
    """Whether the broker treats `message` in a batch as it does alone."""
    if message.is_delayed or message.topic.startswith(RETRY_PREFIX):
        return False
    given = message.system_properties
    return not given or not (names.PGROUP in given or names.MSG_TYPE in given)


@dataclass(slots=True)
class _Group:
    """Messages that leave together."""

    key: _Key
    timer: asyncio.TimerHandle | None = None
    items: list[BatchItem] = field(default_factory=list[BatchItem])
    answers: "list[asyncio.Future[SendResult]]" = field(default_factory=list["asyncio.Future[SendResult]"])
    body_bytes: int = 0
    request_bytes: int = 0


class Accumulator:
    """The groups of one producer."""

    def __init__(
        self, options: ProducerOptions, make_item: MakeItem, send_alone: SendAlone, send_together: SendTogether
    ) -> None:
        self._options, self._make_item = options, make_item
        self._send_alone, self._send_together = send_alone, send_together
        self._groups: dict[_Key, _Group] = {}
        self._held_bytes = 0  # of bodies that have no answer yet
        self._tasks = TaskSet()
        self._closing = False

    async def send(self, message: Outgoing, queue: MessageQueue | None, timeout_ms: int | None) -> SendResult:
        """The result of `message`, which may wait for others to leave with it."""
        if self._closing:
            raise ClientClosed("the producer")
        options = self._options
        key = (message.topic, queue, message.wait_stored, message.tags, timeout_ms)
        is_full = self._held_bytes >= options.batch_total_bytes_max
        if is_full or len(message.body) > options.batch_bytes_max or not may_share_a_batch(message):
            if key in self._groups:
                self._leave(key)
                await asyncio.sleep(0)  # its request is on its way first
            return await self._send_alone(message, queue, timeout_ms)
        item = self._make_item(message)
        answer: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._add(key, item, answer)
        return await answer

    async def close(self) -> None:
        """Send all groups now, and wait for their results."""
        self._closing = True
        try:
            for key in list(self._groups):
                self._leave(key)
            await self._tasks.join()
        finally:
            self._closing = False

    def _add(self, key: _Key, item: BatchItem, answer: "asyncio.Future[SendResult]") -> None:
        options, request_bytes, size = self._options, item.request_bytes, len(item.element.body)
        group = self._groups.get(key)
        if group is not None and group.request_bytes + request_bytes > options.message_bytes_max:
            self._leave(key)
            group = None
        if group is None:
            group = self._groups[key] = _Group(key)
            loop = asyncio.get_running_loop()
            group.timer = loop.call_later(options.batch_hold_ms / 1000, self._leave, key)
        group.items.append(item)
        group.answers.append(answer)
        group.body_bytes += size
        group.request_bytes += request_bytes
        self._held_bytes += size
        if group.body_bytes > options.batch_bytes_max:
            self._leave(key)

    def _leave(self, key: _Key) -> None:
        """Send the group of `key` now, if there is one."""
        group = self._groups.pop(key, None)
        if group is None:
            return
        if group.timer is not None:
            group.timer.cancel()
        self._tasks.start(self._send_group(group), f"send a batch for {key[0]}")

    async def _send_group(self, group: _Group) -> None:
        try:
            # A sender that was cancelled meanwhile wants its message to stay here.
            wanted = [i for i, answer in enumerate(group.answers) if not answer.done()]
            answers = [group.answers[i] for i in wanted]
            if not wanted:
                return
            try:
                results = await self._results([group.items[i] for i in wanted], group.key)
            except BaseException as error:
                for answer in answers:
                    _fail(answer, error)
                if not isinstance(error, Exception):
                    raise
                return
            for answer, result in zip(answers, results, strict=True):
                if not answer.done():
                    answer.set_result(result)
        finally:
            self._held_bytes -= group.body_bytes

    async def _results(self, items: list[BatchItem], key: _Key) -> list[SendResult]:
        _, queue, _, _, timeout_ms = key
        if len(items) == 1:
            return [await self._send_alone(items[0].message, queue, timeout_ms)]
        sent = await self._send_together(items, queue, timeout_ms)
        return split_result(sent, [item.message_id for item in items])


def _fail(answer: "asyncio.Future[SendResult]", error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
        return
    answer.set_exception(error)
    answer.exception()  # marks it as seen: its sender may be cancelled in the same turn of the loop
