"""Cleaning up on request, and codes whose feature this broker does not have.

A question about such a feature is answered as by a Java broker that does not use it; a change of one is refused.

305, 306, 316, 329; 905, 908; 1007, 354, 355, 2001 to 2004, 3001 to 3010.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twinlog.base.system_names import SYSTEM_TOPICS
from twinlog.broker.topics.name_rules import is_reserved
from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import TopicList, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command

log = get_logger(__name__)
CHECK_IN_PROGRESS = 2
NO_COLD_DATA: dict[str, object] = {
    "runtimeTable": {},
    "configTable": {},
    "cgColdReadThreshold": 3_145_728,
    "globalColdReadThreshold": 104_857_600,
    "globalAcc": 0,
}
WITHOUT_EFFECT = {
    RequestCode.RESET_MASTER_FLUSH_OFFSET: "a replica here asks its master how far it may go and keeps no such offset",
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: "this broker does not slow down readers of cold data",
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: "this broker does not slow down readers of cold data",
    RequestCode.SET_COMMITLOG_READ_MODE: "this broker leaves reading ahead to the operating system",
}


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    operations = OperationHandlers(ctx)
    return {
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: operations.system_topics,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: operations.clean_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: operations.clean_topics,
        RequestCode.DELETE_EXPIRED_COMMITLOG: operations.delete_expired,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: _done,
        RequestCode.GET_BROKER_EPOCH_CACHE: _no_controller,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _rocksdb_progress,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: _rocksdb_export,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: _cold_data,
        **dict.fromkeys(WITHOUT_EFFECT, _without_effect),
    }


class OperationHandlers:
    """Cleans up, and lists system topics."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def system_topics(self, request: Request) -> Command:
        settings = self._ctx.settings
        own = {topic for topic in self._ctx.topics.rows if is_reserved(topic, settings)}
        return request.reply(body=encode_body(TopicList(topic_list=sorted(SYSTEM_TOPICS | own))))

    async def clean_queues(self, request: Request) -> Command:
        """Delete queue files whose records are deleted."""
        ctx = self._ctx
        work = partial(ctx.store.queues.delete_expired, ctx.store.log_start)
        deleted = await ctx.disk_work.run(request.connection, work)
        log.info("expired queue files deleted", files=deleted, peer=request.connection.peer_text)
        return _deleted(request, deleted)

    def clean_topics(self, request: Request) -> Command:
        """Delete the queues of topics that no longer exist."""
        ctx = self._ctx
        topics = ctx.store.queues.topics()
        unused = [topic for topic in topics if topic not in ctx.topics and not is_reserved(topic, ctx.settings)]
        for topic in unused:
            ctx.store.delete_topic(topic)
        if unused:
            log.info("queues of unknown topics deleted", topics=",".join(unused), peer=request.connection.peer_text)
        return _deleted(request, len(unused))

    async def delete_expired(self, request: Request) -> Command:
        ctx = self._ctx
        cleaned = ctx.store.drop_expired(ctx.wall_ms(), manual=True)
        if cleaned.segments:
            await ctx.disk_work.run(request.connection, ctx.store.clean_queues)
        log.info("expired segments deleted", segments=cleaned.segments, peer=request.connection.peer_text)
        return _deleted(request, cleaned.segments)


def _deleted(request: Request, count: int) -> Command:
    """Our own field: Java's tools do not read it."""
    return request.reply(fields={"deleted": str(count)})


def _done(request: Request) -> Command:
    return request.reply()


def _without_effect(request: Request) -> Command:
    remark = f"request {request.code} would have no effect: {WITHOUT_EFFECT[RequestCode(request.code)]}"
    raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def _cold_data(request: Request) -> Command:
    return request.reply(body=encode_body(NO_COLD_DATA))


def _no_controller(request: Request) -> Command:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")


def _rocksdb_progress(request: Request) -> Command:
    return request.reply(body=encode_body({"checkStatus": CHECK_IN_PROGRESS}))


def _rocksdb_export(request: Request) -> Command:
    return request.reply(remark="export done.")
