"""Creating, changing, deleting and showing topics (17, 18, 215, 351).

A creation or change is on disk before its answer leaves; creations that arrive together share the write.
"""

from __future__ import annotations

from twinlog.base.system_names import RETRY_PREFIX
from twinlog.broker.admin.attribute_changes import parsed_changes, with_attributes
from twinlog.broker.context import BrokerContext
from twinlog.broker.topics.name_rules import is_reserved, topic_name_problem
from twinlog.broker.topics.topic_limits import Turns, check_topic
from twinlog.metadata.attributes import MESSAGE_TYPE, TOPIC_ATTRIBUTES
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import TopicConfig, TopicConfigList, decode_body, encode_body
from twinlog.wire.codes import UNSET_REMARK, RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import CreateTopicHeader, TopicHeader

log = get_logger(__name__)

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    topics = TopicHandlers(ctx)
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.create,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.create_list,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
        RequestCode.GET_TOPIC_CONFIG: topics.show,
    }


class TopicHandlers:
    """Changes and shows the topic table."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    async def create(self, request: Request) -> Command:
        header = decode_fields(CreateTopicHeader, request.fields)
        self._check_name(header.topic)
        if header.topic_filter_type not in FILTER_TYPES:
            remark = f"topicFilterType = [{header.topic_filter_type}] value invalid"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        if header.read_queue_nums is None or header.write_queue_nums is None or header.perm is None:
            remark = "readQueueNums, writeQueueNums and perm must be numbers; send all three"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        wanted = TopicConfig(
            topic_name=header.topic or "",
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=parsed_changes(header.attributes),
        )
        await self._store([wanted])
        return request.reply(remark=UNSET_REMARK)

    async def create_list(self, request: Request) -> Command:
        """All topics or none: every one is checked before the first is stored."""
        await self._store(decode_body(TopicConfigList, request.body).topic_config_list)
        return request.reply(remark=UNSET_REMARK)

    def _check_name(self, topic: str | None) -> None:
        problem = topic_name_problem(topic)
        if problem is None and is_reserved(topic or "", self._ctx.settings):
            problem = f"The topic[{topic}] is conflict with system topic."
        if problem is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, problem)

    async def _store(self, wanted: list[TopicConfig]) -> None:
        """Put topics whose attributes are still changes (`+key`), save, and wait until the name servers know them."""
        ctx = self._ctx
        rows: dict[str, TopicConfig] = {}
        async for part in Turns().slices(len(wanted)):
            for number in part:
                config = wanted[number]
                self._check_name(config.topic_name)
                check_topic(ctx, config)
                rows[config.topic_name] = self._with_attributes(config)
        changed = [name for name, config in rows.items() if ctx.topics.get(name) != config]
        if ctx.topics.put_all(rows, ctx.clock_ms()):
            log.info("topics created or changed", topics=",".join(changed))
            ctx.notify_topic_changed(changed)
        await ctx.topics.saved()
        if ctx.wait_until_announced is not None:
            await ctx.wait_until_announced()

    def _with_attributes(self, config: TopicConfig) -> TopicConfig:
        if config.attributes.get(f"+{MESSAGE_TYPE}") == "MIXED":
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        return with_attributes(config, self._ctx.topics.get(config.topic_name), TOPIC_ATTRIBUTES)

    async def delete(self, request: Request) -> Command:
        topic = decode_fields(TopicHeader, request.fields).topic or ""
        if not topic.strip():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if is_reserved(topic, self._ctx.settings):
            remark = f"The topic[{topic}] is conflict with system topic."
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        ctx, now_ms = self._ctx, self._ctx.clock_ms()
        retries = [name for group in ctx.offsets.groups_of(topic) for name in _pop_retry_topics(topic, group)]
        gone = [name for name in (topic, *retries) if ctx.topics.remove(name, now_ms) is not None]
        ctx.offsets.remove_topic(topic, now_ms)
        if topic_name_problem(topic) is None:  # an invalid name must not become a path
            ctx.store.delete_topic(topic)
        for name in gone[1:]:
            ctx.offsets.remove_topic(name, now_ms)
            ctx.store.delete_topic(name)
        if gone:
            log.info("topics deleted", topics=",".join(gone))
            ctx.notify_topic_changed(gone)
            await ctx.topics.saved()
        return request.reply()

    def show(self, request: Request) -> Command:
        topic = decode_fields(TopicHeader, request.fields).topic
        config = self._ctx.topics.get(topic or "")
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.reply(body=encode_body(config))


def _pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Where 5.x keeps retries of popped messages, by its newer and its older rule."""
    return f"{RETRY_PREFIX}{group}+{topic}", f"{RETRY_PREFIX}{group}_{topic}"
