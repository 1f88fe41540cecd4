"""Consumer offsets and the bounds of queues (14, 15, 29, 30, 31, 32)."""

from __future__ import annotations

from functools import partial

from twinlog.broker.context import BrokerContext
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.store.queues.read import ReadStatus
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import QueryOffsetHeader, QueueHeader, SearchOffsetHeader, UpdateOffsetHeader


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    offsets = OffsetHandlers(ctx)
    return {
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
        RequestCode.GET_MAX_OFFSET: offsets.max_offset,
        RequestCode.GET_MIN_OFFSET: offsets.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_store_time,
    }


class OffsetHandlers:
    """Answers from the offset table and the store; unknown topics and queues are empty, as in Java.

    An offset is stored only for a queue that exists. Java stores one for any queue number.
    """

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def query(self, request: Request) -> Command:
        header = decode_fields(QueryOffsetHeader, request.fields)
        group, topic, queue_id = header.consumer_group or "", header.topic or "", _queue_id(header.queue_id)
        offset = self._ctx.offsets.get(group, topic, queue_id)
        if offset is not None and offset >= 0:
            return request.reply(fields={"offset": str(offset)})
        if header.set_zero_if_not_found is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark, {})
        if self._starts_in_memory(topic, queue_id):
            return request.reply(fields={"offset": "0"})
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark, {})

    def _starts_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether message 0 of the queue exists and is recent: then a new group starts with it."""
        first = self._ctx.store.read(topic, queue_id, 0, count_max=1)
        return first.status is ReadStatus.FOUND and not first.far_behind

    def update(self, request: Request) -> Command:
        header = decode_fields(UpdateOffsetHeader, request.fields)
        ctx, group, topic = self._ctx, header.consumer_group or "", header.topic or ""
        if group not in ctx.groups:  # Java 5.x: a commit creates no group, whatever autoCreateSubscriptionGroup is
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            raise RequestRefused(code, f"Group {header.consumer_group} not exist!", {})
        if topic not in ctx.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!", {})
        if header.queue_id is None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}", {})
        if header.commit_offset is None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}", {})
        if not ctx.has_queue(topic, header.queue_id):
            remark = f"topic {topic} has no queue {header.queue_id}; commit to one of its queues"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark, {})
        if ctx.settings.resets_on_server and ctx.offsets.reset_pending(group, topic, header.queue_id):
            return request.reply(remark="Offset has been previously reset", fields={})
        ctx.offsets.commit(group, topic, header.queue_id, header.commit_offset, ctx.clock_ms())
        return request.reply(fields={})

    async def search(self, request: Request) -> Command:
        """A search reads some twenty records all over the queue, most of them from disk."""
        header = decode_fields(SearchOffsetHeader, request.fields)
        store, upper = self._ctx.store, (header.boundary_type or "").upper() == "UPPER"
        place = header.topic or "", _queue_id(header.queue_id), header.timestamp or 0
        work = partial(store.search_offset, *place, upper=upper, log=store.log_on_disk())
        found = await self._ctx.disk_work.run(request.connection, work)
        return request.reply(fields={"offset": str(found)})

    def max_offset(self, request: Request) -> Command:
        header = decode_fields(QueueHeader, request.fields)
        offset = self._ctx.store.max_offset(header.topic or "", _queue_id(header.queue_id))
        return request.reply(fields={"offset": str(offset)})

    def min_offset(self, request: Request) -> Command:
        header = decode_fields(QueueHeader, request.fields)
        offset = max(self._ctx.store.min_offset(header.topic or "", _queue_id(header.queue_id)), 0)
        return request.reply(remark="", fields={"offset": str(offset)})  # Java: an empty remark, here only

    async def earliest_store_time(self, request: Request) -> Command:
        header = decode_fields(QueueHeader, request.fields)
        topic, queue_id, store = header.topic or "", _queue_id(header.queue_id), self._ctx.store
        first = store.min_offset(topic, queue_id)
        work = partial(store.store_time_of, topic, queue_id, first, log=store.log_on_disk())
        at = await self._ctx.disk_work.run(request.connection, work)
        return request.reply(fields={"timestamp": str(at)})


def _queue_id(value: int | None) -> int:
    return -1 if value is None else value
