"""KV configs: values by namespace and key (100, 101, 102, 219)."""

from __future__ import annotations

from collections.abc import Awaitable

from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.errors import TableFull
from twinlog.nameserver.request_checks import not_written, required
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.wire.bodies import KVTable, encode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import KvConfigHeader


def handlers(ctx: NameServerContext) -> dict[int, Handler]:
    configs = KvHandlers(ctx)
    return {
        RequestCode.PUT_KV_CONFIG: configs.put,
        RequestCode.GET_KV_CONFIG: configs.get,
        RequestCode.DELETE_KV_CONFIG: configs.delete,
        RequestCode.GET_KVLIST_BY_NAMESPACE: configs.list,
    }


class KvHandlers:
    """Shows and changes KV configs; a change is on disk before its answer leaves."""

    def __init__(self, ctx: NameServerContext) -> None:
        self._ctx = ctx

    async def put(self, request: Request) -> Command:
        header = decode_fields(KvConfigHeader, request.fields)
        namespace, key = header.namespace, header.key
        if namespace is None or key is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        value, settings = required(header.value, "value"), self._ctx.settings
        length, most = len(namespace) + len(key) + len(value), settings.kv_length_max
        if length > most:
            raise self._too_long(f"a KV config of {length} characters", "maxKvLength", most)
        most = settings.kv_table_length_max
        try:
            await self._saved(self._ctx.kv.put(namespace, key, value, length_max=most))
        except TableFull as full:
            raise self._too_long(str(full), "maxKvTableLength", most) from full
        return request.reply()

    def _too_long(self, what: str, key: str, limit: int) -> RequestRefused:
        return self._ctx.limits.refuse(ResponseCode.SYSTEM_ERROR, what, key, limit, "keep less there, or raise it")

    def get(self, request: Request) -> Command:
        header = decode_fields(KvConfigHeader, request.fields)
        value = self._ctx.kv.get(header.namespace or "", header.key or "")
        if value is None:
            remark = f"No config item, Namespace: {_or_null(header.namespace)} Key: {_or_null(header.key)}"
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark, {})
        return request.reply(fields={"value": value})

    async def delete(self, request: Request) -> Command:
        header = decode_fields(KvConfigHeader, request.fields)
        await self._saved(self._ctx.kv.delete(header.namespace or "", header.key or ""))
        return request.reply()

    def list(self, request: Request) -> Command:
        namespace = decode_fields(KvConfigHeader, request.fields).namespace
        found = self._ctx.kv.namespace(namespace) if namespace is not None else None
        if found is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {_or_null(namespace)}")
        return request.reply(body=encode_body(KVTable(table=found)))

    async def _saved(self, change: Awaitable[None]) -> None:
        try:
            await change
        except OSError as error:
            raise not_written(f"KV configs cannot be written to {self._ctx.settings.kv_path}: {error}") from error


def _or_null(text: str | None) -> str:
    return "null" if text is None else text
