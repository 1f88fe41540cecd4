"""Messages by key (code 12) and by physical offset (code 33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import QueryMessageHeader, ViewMessageHeader

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command

UNIQUE_KEY_MARK = "_UNIQUE_KEY_QUERY"


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    queries = QueryHandlers(ctx)
    return {RequestCode.QUERY_MESSAGE: queries.query, RequestCode.VIEW_MESSAGE_BY_ID: queries.view}


class QueryHandlers:
    """Finds messages in the index and in the log."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def query(self, request: Request) -> Command:
        header = decode_fields(QueryMessageHeader, request.fields)
        if header.topic is None or header.key is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "topic or key is missing; a query names both", {})
        count, settings = header.max_num or 0, self._ctx.conf.store
        if (request.fields or {}).get(UNIQUE_KEY_MARK) == "true":
            count = settings.unique_query_count
        count = min(count, settings.query_count_max)
        found = self._ctx.store.query(
            header.topic, header.key, count, header.begin_timestamp or 0, header.end_timestamp or 0
        )
        fields = {
            "indexLastUpdateTimestamp": str(found.last_update_timestamp),
            "indexLastUpdatePhyoffset": str(found.last_update_offset),
        }
        if not found.buffers:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return request.reply(fields=fields, body=b"".join(found.buffers))

    def view(self, request: Request) -> Command:
        offset = decode_fields(ViewMessageHeader, request.fields).offset
        record = None if offset is None or offset < 0 else self._ctx.store.record_at(offset)
        if record is None or self._ctx.store.message_at(offset or 0) is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}", {})
        return request.reply(body=bytes(record))
