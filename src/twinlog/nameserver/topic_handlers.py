"""What operators change in the routes: topics and write permissions (217, 216, 205, 327)."""

from __future__ import annotations

from collections.abc import Callable

from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.request_checks import QUEUES_KEY, TOPICS_KEY, is_served, required
from twinlog.net.connection import Handler, Request
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import TopicRouteData, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command

log = get_logger(__name__)


def handlers(ctx: NameServerContext) -> dict[int, Handler]:
    topics = TopicHandlers(ctx)
    return {
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: topics.register,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: topics.delete,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: topics.wipe_write_permission,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: topics.add_write_permission,
    }


class TopicHandlers:
    """Changes the route table on request; a broker's next registration may undo it."""

    def __init__(self, ctx: NameServerContext) -> None:
        self._ctx = ctx

    def register(self, request: Request) -> Command:
        ctx = self._ctx
        topic = required((request.fields or {}).get("topic"), "topic")
        queues = decode_body(TopicRouteData, request.body).queue_datas
        known = {one.broker_name for one in queues} <= ctx.table.names_of(request.connection)
        if not known and not ctx.conf.access.authentication:
            ctx.local_admin.check(request)  # a broker registers topics of its own only
        code, limit = ResponseCode.INVALID_PARAMETER, ctx.settings.topic_queues_max
        for one in queues:
            if not is_served(one, limit):
                what = f"topic {topic} with {one.read_queue_nums} read and {one.write_queue_nums} write queues"
                raise ctx.limits.refuse(code, what, QUEUES_KEY, limit, "register 0 to as many")
        most, others = ctx.settings.route_topics_max, len(ctx.table.topics)
        if topic not in ctx.table.topics and others >= most:
            what = f"topic {topic} beside {others} others"
            raise ctx.limits.refuse(code, what, TOPICS_KEY, most, "delete some, or raise it")
        ctx.table.register_topic(topic, queues)
        return request.reply()

    def delete(self, request: Request) -> Command:
        fields = request.fields or {}
        topic = required(fields.get("topic"), "topic")
        self._ctx.table.delete_topic(topic, fields.get("clusterName"))
        log.info("a topic was deleted by request", topic=topic, peer=request.connection.peer_text)
        return request.reply()

    def wipe_write_permission(self, request: Request) -> Command:
        return self._change_permission(request, self._ctx.table.wipe_write_permission, "wipeTopicCount")

    def add_write_permission(self, request: Request) -> Command:
        return self._change_permission(request, self._ctx.table.add_write_permission, "addTopicCount")

    def _change_permission(self, request: Request, change: Callable[[str], int], answer: str) -> Command:
        name = (request.fields or {}).get("brokerName", "")
        count = change(name)
        log.info("write permissions were changed by request", broker=name, topics=count, what=answer)
        return request.reply(fields={answer: str(count)})
