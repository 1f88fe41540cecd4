"""Messages by key (code 12) and by physical offset (code 33).

They may be anywhere in the index and in the log, so the disk is read in a thread beside the loop. A query for a key
that the index lacks is mostly answered in the loop: writers of Spark ask for many of them before they send.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.net.limits import limit_text
from twinlog.store.log.log_access import OnDisk
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import FOR_REPAIR, QueryMessageHeader, ViewMessageHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.store.log.log_access import LogAccess
    from twinlog.store.readable_store import QueryResult
    from twinlog.wire.command import Command

UNIQUE_KEY_MARK = "_UNIQUE_KEY_QUERY"
BYTES_KEY = "maxQueryBytes"


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    queries = QueryHandlers(ctx)
    return {RequestCode.QUERY_MESSAGE: queries.query, RequestCode.VIEW_MESSAGE_BY_ID: queries.view}


class QueryHandlers:
    """Finds messages in the index and in the log."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def query(self, request: Request) -> Command | Awaitable[Command]:
        header = decode_fields(QueryMessageHeader, request.fields)
        if header.topic is None or header.key is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "topic or key is missing; a query names both", {})
        count, settings = header.max_num or 0, self._ctx.conf.store
        if (request.fields or {}).get(UNIQUE_KEY_MARK) == "true":
            count = settings.unique_query_count
        count = min(count, settings.query_count_max)
        times = header.begin_timestamp or 0, header.end_timestamp or 0
        find = partial(self._find, header.topic, header.key, count, *times)
        try:
            return self._found(request, header.topic, *find(self._ctx.store.log_in_memory()))
        except (OnDisk, OSError):  # a thread tries again what failed
            return self._query_on_disk(request, header.topic, find)

    async def _query_on_disk(
        self, request: Request, topic: str, find: Callable[[LogAccess], tuple[QueryResult, bytes]]
    ) -> Command:
        work = partial(find, self._ctx.store.log_on_disk())
        return self._found(request, topic, *await self._ctx.disk_work.run(request.connection, work))

    def _found(self, request: Request, topic: str, found: QueryResult, body: bytes) -> Command:
        bytes_max = self._ctx.settings.query_bytes_max
        fields = {
            "indexLastUpdateTimestamp": str(found.last_update_timestamp),
            "indexLastUpdatePhyoffset": str(found.last_update_offset),
        }
        if not body:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        if not found.is_cut:
            return request.reply(fields=fields, body=body)
        self._ctx.limits.left_out(f"messages of {topic} with one key", BYTES_KEY, bytes_max)
        what, advice = "older messages with this key are left out", "ask for an earlier time, or raise it"
        return request.reply(remark=limit_text(what, BYTES_KEY, bytes_max, advice), fields=fields, body=body)

    def _find(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, log: LogAccess
    ) -> tuple[QueryResult, bytes]:
        bytes_max = self._ctx.settings.query_bytes_max
        found = self._ctx.store.query(topic, key, count_max, begin_ms, end_ms, bytes_max=bytes_max, log=log)
        return found, b"".join(found.buffers)

    def view(self, request: Request) -> Command | Awaitable[Command]:
        offset = decode_fields(ViewMessageHeader, request.fields).offset
        try:
            return self._view(request, offset, self._ctx.store.log_in_memory())
        except OnDisk:
            work = partial(self._view, request, offset, self._ctx.store.log_on_disk())
            return self._ctx.disk_work.run(request.connection, work)

    def _view(self, request: Request, offset: int | None, log: LogAccess) -> Command:
        store = self._ctx.store
        # A twin that repairs its log may have this place from a damaged queue.
        noted = FOR_REPAIR not in (request.fields or {})
        record = None if offset is None or offset < 0 else store.whole_record_at(offset, log=log, noted=noted)
        message = None if record is None else store.message_at(offset or 0, log=log)
        # With access control, the permission was for the topic that the request names: the message must be in it.
        named = (request.fields or {}).get("topic")
        if message is not None and self._ctx.gate is not None and named not in (None, message.topic):
            message = None
        if record is None or message is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}", {})
        return request.reply(body=bytes(record))
