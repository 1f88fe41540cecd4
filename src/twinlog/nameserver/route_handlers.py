"""Routes, clusters and lists of topics (105, 106, 206, 224, 304, 311, 312, 313)."""

from __future__ import annotations

from collections.abc import Callable

from twinlog.nameserver import routes
from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.kv_config import ORDER_TOPICS
from twinlog.nameserver.route_body import encode_route
from twinlog.nameserver.route_table import RouteTable
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.wire.bodies import TopicList, encode_body
from twinlog.wire.codes import FAQ_REMARK, RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import RouteHeader


def handlers(ctx: NameServerContext) -> dict[int, Handler]:
    reads = RouteHandlers(ctx)
    return {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: reads.route,
        RequestCode.GET_BROKER_CLUSTER_INFO: reads.cluster_info,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: reads.all_topics,
        RequestCode.GET_TOPICS_BY_CLUSTER: reads.cluster_topics,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: reads.system_topics,
        RequestCode.GET_UNIT_TOPIC_LIST: reads.listing(routes.unit_topics),
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: reads.listing(routes.unit_subscription_topics),
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: reads.listing(routes.unit_subscription_only_topics),
    }


class RouteHandlers:
    """Answers from the route table; changes nothing."""

    def __init__(self, ctx: NameServerContext) -> None:
        self._ctx = ctx

    def route(self, request: Request) -> Command:
        ctx, settings = self._ctx, self._ctx.settings
        if settings.waits_for_service and ctx.clock_ms() - ctx.started_ms < settings.wait_seconds * 1000:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        header = decode_fields(RouteHeader, request.fields)
        topic = header.topic
        found = None
        if topic is not None:
            found = routes.find_route(ctx.table, topic, acting_masters=settings.acting_masters)
        if topic is None or found is None:
            remark = (
                f"No topic route info in name server for the topic: {'null' if topic is None else topic}{FAQ_REMARK}"
            )
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if settings.order_topics_in_routes:
            found.order_topic_conf = ctx.kv.get(ORDER_TOPICS, topic)
        fields = request.fields or {}
        zone = fields.get("__ZONE_NAME", "")
        if fields.get("__ZONE_MODE", "").lower() == "true" and zone.strip():
            return request.reply(body=encode_body(routes.keep_zone(found, zone)))
        standard = header.accept_standard_json_only
        return request.reply(body=encode_route(found, requester_version=request.version, standard_only=standard))

    def cluster_info(self, request: Request) -> Command:
        return request.reply(body=encode_body(routes.cluster_info(self._ctx.table)))

    # -- lists of topics -----------------------------------------------------------------------

    def all_topics(self, request: Request) -> Command:
        if not self._ctx.settings.all_topics_listed:
            return request.reply(ResponseCode.SYSTEM_ERROR, "disable")
        return request.reply(body=encode_body(TopicList(topic_list=list(self._ctx.table.topics))))

    def cluster_topics(self, request: Request) -> Command:
        cluster = (request.fields or {}).get("cluster", "")
        return self.listing(lambda table: routes.topics_of_cluster(table, cluster))(request)

    def system_topics(self, request: Request) -> Command:
        topics, address = routes.system_topics(self._ctx.table)
        return request.reply(body=encode_body(TopicList(topic_list=topics, broker_addr=address)))

    def listing(self, topics: Callable[[RouteTable], list[str]]) -> Callable[[Request], Command]:
        """A handler that answers with these topics, where topics may be listed."""

        def answer(request: Request) -> Command:
            if not self._ctx.settings.topics_listed:
                return request.reply(ResponseCode.SYSTEM_ERROR, "disable")
            return request.reply(body=encode_body(TopicList(topic_list=topics(self._ctx.table))))

        return answer
