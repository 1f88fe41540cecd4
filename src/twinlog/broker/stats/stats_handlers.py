"""Statistics of topics, groups and queues, for mqadmin (202, 208, 317, 300, 303, 343, 345, 315, 321, 308)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from twinlog.broker.stats.consume_stats import (
    all_consume_stats,
    consume_stats,
    correction_offsets,
    inflight,
    lag,
    topic_stats,
)
from twinlog.broker.topics.topic_limits import Turns, check_walk
from twinlog.net.errors import RequestRefused
from twinlog.wire.bodies import GroupList, TopicList, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import ConsumeQueueHeader, ConsumerGroupHeader, GroupHeader, StatsHeader, TopicHeader

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.stats import Growth
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.bodies import TopicConfig
    from twinlog.wire.command import Command

ROWS_IN_LOOP_MAX = 1_000  # more are encoded in a thread


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    stats = StatsHandlers(ctx)
    return {
        RequestCode.GET_TOPIC_STATS_INFO: stats.topic,
        RequestCode.GET_CONSUME_STATS: stats.consume,
        RequestCode.GET_BROKER_CONSUME_STATS: stats.consume_all,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: stats.groups_of_topic,
        RequestCode.QUERY_CONSUME_TIME_SPAN: stats.time_span,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: stats.topics_of_group,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: stats.subscription,
        RequestCode.VIEW_BROKER_STATS_DATA: stats.view,
        RequestCode.QUERY_CONSUME_QUEUE: stats.queue,
        RequestCode.QUERY_CORRECTION_OFFSET: stats.correction,
    }


class StatsHandlers:
    """Answers from the tables, the queues and the statistics."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        # One walk over queues at a time: many requests delay other work no longer than one does.
        self._walking = asyncio.Lock()
        self._turns = Turns()

    async def topic(self, request: Request) -> Command:
        config = self._known_topic(decode_fields(TopicHeader, request.fields).topic)
        async with self._walking:
            stats = await topic_stats(self._ctx, config, self._turns)
            return request.reply(body=await self._encoded(stats, len(stats.offset_table)))

    async def consume(self, request: Request) -> Command:
        header = decode_fields(ConsumerGroupHeader, request.fields)
        group = header.consumer_group or ""
        if header.topic:
            topics = [header.topic]
        elif header.topic_list:
            topics = list(dict.fromkeys(topic for topic in header.topic_list.split(";") if topic))
        else:
            topics = sorted(self._ctx.offsets.topics_of(group))
        async with self._walking:
            stats = await consume_stats(self._ctx, group, topics, self._turns)
            return request.reply(body=await self._encoded(stats, len(stats.offset_table)))

    async def consume_all(self, request: Request) -> Command:
        ctx = self._ctx
        orderly_only = (request.fields or {}).get("isOrder", "").lower() == "true"
        async with self._walking:
            found = await all_consume_stats(ctx, self._turns, orderly_only=orderly_only)
            every = [one for stats in found.values() for one in stats]
            body = {
                "brokerAddr": ctx.settings.address,
                "consumeStatsList": [{group: stats} for group, stats in found.items()],
                "totalDiff": sum(map(lag, every)),
                "totalInflightDiff": sum(map(inflight, every)),
            }
            return request.reply(body=await self._encoded(body, sum(len(one.offset_table) for one in every)))

    def groups_of_topic(self, request: Request) -> Command:
        topic = decode_fields(TopicHeader, request.fields).topic or ""
        groups = self._ctx.clients.groups_of_topic(topic) | self._ctx.offsets.groups_of(topic)
        return request.reply(body=encode_body(GroupList(group_list=sorted(groups))))

    async def time_span(self, request: Request) -> Command:
        header = decode_fields(GroupHeader, request.fields)
        config = self._known_topic(header.topic)
        check_walk(config.topic_name, config.write_queue_nums)
        spans: list[dict[str, object]] = []
        async with self._walking:
            async for part in self._turns.slices(config.write_queue_nums):
                spans += [self._span(header.group or "", config, queue_id) for queue_id in part]
            return request.reply(body=await self._encoded({"consumeTimeSpanSet": spans}, len(spans)))

    async def _encoded(self, body: object, rows: int) -> bytes:
        if rows <= ROWS_IN_LOOP_MAX:
            return encode_body(body)
        return await self._ctx.table_work.in_order("statistics", encode_body, body)

    def _span(self, group: str, config: TopicConfig, queue_id: int) -> dict[str, object]:
        ctx, store, topic = self._ctx, self._ctx.store, config.topic_name
        high = store.max_offset(topic, queue_id)
        first_ms = store.store_time_of(topic, queue_id, store.min_offset(topic, queue_id))
        last_ms = store.store_time_of(topic, queue_id, high - 1)
        consumed = ctx.offsets.get(group, topic, queue_id) or 0
        consumed_ms = store.store_time_of(topic, queue_id, consumed - 1) if consumed > 0 else first_ms
        delay_ms = 0
        if consumed < high:
            delay_ms = max(ctx.wall_ms() - store.store_time_of(topic, queue_id, consumed), 0)
        return {
            "consumeTimeStamp": consumed_ms,
            "consumeTimeStampStr": java_date(consumed_ms),
            "delayTime": delay_ms,
            "maxTimeStamp": last_ms,
            "maxTimeStampStr": java_date(last_ms),
            "messageQueue": ctx.queue(topic, queue_id),
            "minTimeStamp": first_ms,
            "minTimeStampStr": java_date(first_ms),
        }

    def topics_of_group(self, request: Request) -> Command:
        group = decode_fields(GroupHeader, request.fields).group or ""
        topics = sorted(self._ctx.offsets.topics_of(group))
        return request.reply(body=encode_body(TopicList(topic_list=topics, broker_addr=self._ctx.settings.address)))

    def subscription(self, request: Request) -> Command:
        header = decode_fields(GroupHeader, request.fields)
        found = self._ctx.clients.subscription(header.group or "", header.topic or "")
        body: dict[str, object] = {"group": header.group or ""}
        if found is not None:
            body["subscriptionData"] = found
        return request.reply(body=encode_body({**body, "topic": header.topic or ""}))

    def view(self, request: Request) -> Command:
        header = decode_fields(StatsHeader, request.fields)
        found = self._ctx.stats.view(header.stats_name or "", header.stats_key or "", self._ctx.clock_ms())
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        body = {"statsDay": _grown(found.day), "statsHour": _grown(found.hour), "statsMinute": _grown(found.minute)}
        return request.reply(body=encode_body(body))

    def queue(self, request: Request) -> Command:
        header = decode_fields(ConsumeQueueHeader, request.fields)
        topic, queue_id, store = header.topic or "", header.queue_id or 0, self._ctx.store
        if store.queues.get(topic, queue_id) is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first = max(header.index or 0, low)
        rows: list[dict[str, int]] = []
        count, most = max(header.count or 0, 0), self._ctx.settings.query_entries_max
        if count > most and high - first > most:
            self._ctx.limits.left_out(f"{count} entries of {queue_id}@{topic}", "maxQueueEntriesPerQuery", most)
        for offset in range(first, min(high, first + min(count, most))):
            unit = store.unit(topic, queue_id, offset)
            if unit is not None:
                physical_offset, size, tags_code = unit
                # Java evaluates a filter here only for units with a queue extension.
                row = {"eval": False, "physicOffset": physical_offset, "physicSize": size, "tagsCode": tags_code}
                rows.append(row)
        body: dict[str, object] = {"maxQueueIndex": high, "minQueueIndex": low, "queueData": rows}
        if header.consumer_group:
            body |= self._filter_of(header.consumer_group, topic)
        return request.reply(body=encode_body(body))

    def _filter_of(self, group: str, topic: str) -> dict[str, object]:
        """What a group selects from a topic, for queryCq."""
        subscription = self._ctx.clients.subscription(group, topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        row = self._ctx.filters.get(topic, group)
        return {"filterData": msgspec.json.encode(row).decode(), "subscriptionData": subscription}

    def correction(self, request: Request) -> Command:
        fields = request.fields or {}
        without = {group for group in fields.get("filterGroups", "").split(",") if group}
        found = correction_offsets(self._ctx, fields.get("topic", ""), fields.get("compareGroup", ""), without)
        return request.reply(body=encode_body({"correctionOffsets": found}))

    def _known_topic(self, topic: str | None) -> TopicConfig:
        config = self._ctx.topics.get(topic or "")
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config


def java_date(time_ms: int) -> str:
    """A time as mqadmin prints it, in the broker's time zone."""
    at = datetime.fromtimestamp(time_ms / 1000)
    return f"{at:%Y-%m-%d#%H:%M:%S}:{time_ms % 1000:03d}"


def _grown(growth: Growth) -> dict[str, object]:
    return {"avgpt": round(growth.average, 2), "sum": growth.sum, "tps": growth.tps}
