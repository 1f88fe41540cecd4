"""Creating, changing, deleting and showing subscription groups (200, 225, 207, 352, 353)."""

from __future__ import annotations

from twinlog.broker.admin.attribute_changes import with_attributes
from twinlog.broker.context import BrokerContext
from twinlog.broker.topics.ensure import ensure_group
from twinlog.broker.topics.name_rules import group_name_problem
from twinlog.broker.topics.topic_limits import Turns, check_queues
from twinlog.metadata.attributes import GROUP_ATTRIBUTES
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import GroupConfigList, SubscriptionGroupConfig, decode_body, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import DeleteGroupHeader, GroupForbiddenHeader, GroupHeader
from twinlog.wire.java_json.fastjson import dumps

log = get_logger(__name__)


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    groups = GroupHandlers(ctx)
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.create,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.create_list,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.show,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: groups.forbid,
    }


class GroupHandlers:
    """Changes the group table; a change is on disk before its answer leaves."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    async def create(self, request: Request) -> Command:
        await self._store([decode_body(SubscriptionGroupConfig, request.body)])
        return request.reply()

    async def create_list(self, request: Request) -> Command:
        """All groups or none."""
        await self._store(decode_body(GroupConfigList, request.body).group_config_list)
        return request.reply()

    async def _store(self, wanted: list[SubscriptionGroupConfig]) -> None:
        rows: dict[str, SubscriptionGroupConfig] = {}
        async for part in Turns().slices(len(wanted)):
            for number in part:
                rows[wanted[number].group_name] = self._checked(wanted[number])
        if self._ctx.groups.put_all(rows, self._ctx.clock_ms()):
            log.info("groups created or changed", groups=",".join(rows))
        await self._ctx.groups.saved()

    def _checked(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        problem = group_name_problem(config.group_name)
        if problem is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, problem)
        queues = config.retry_queue_nums
        check_queues(self._ctx, f"group {config.group_name} with {queues} retry queues", queues)
        return with_attributes(config, self._ctx.groups.get(config.group_name), GROUP_ATTRIBUTES)

    async def delete(self, request: Request) -> Command:
        header = decode_fields(DeleteGroupHeader, request.fields)
        ctx, group = self._ctx, header.group_name or ""
        if ctx.groups.remove(group, ctx.clock_ms()) is not None:
            log.info("group deleted", group=group, offsets=header.clean_offset)
        if header.clean_offset:
            ctx.offsets.remove_group(group, ctx.clock_ms())
        await ctx.groups.saved()
        return request.reply()

    def show(self, request: Request) -> Command:
        """The group's settings. With autoCreateSubscriptionGroup, asking for a group creates it, as in Java."""
        config = ensure_group(self._ctx, decode_fields(GroupHeader, request.fields).group or "")
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.reply(body=encode_body(config))

    async def forbid(self, request: Request) -> Command:
        """Show whether a group may read a topic, after setting it if the request has a value."""
        header = decode_fields(GroupForbiddenHeader, request.fields)
        groups, group, topic = self._ctx.groups, header.group or "", header.topic or ""
        if header.readable is not None:
            if not header.readable and (group not in groups or topic not in self._ctx.topics):
                remark = f"group {group[:255]} or topic {topic[:255]} does not exist; nothing can be forbidden"
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
            groups.set_readable(group, topic, header.readable, self._ctx.clock_ms())
            await groups.saved()
        shown = {"group": header.group, "readable": groups.may_read(group, topic), "topic": header.topic}
        return request.reply(remark="", body=dumps(shown))
