"""What a replica asks its master in Java's protocol (21, 43, 45, 201, 402, 60, 61), and setting request modes (401).

Topics and groups are sent in pages to a replica that asks for pages; an older one gets everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from twinlog.base.system_names import RETRY_PREFIX
from twinlog.broker.context import BrokerContext
from twinlog.broker.table_work import joined
from twinlog.broker.topics.ensure import ensure_group
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import encode_object, encode_rows
from twinlog.metadata.table import Table
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.replication.metadata.kinds import (
    DELAY_OFFSETS,
    GROUPS,
    GROUPS_PAGING,
    OFFSETS,
    REQUEST_MODES,
    TOPICS,
    TOPICS_PAGING,
    Paging,
)
from twinlog.wire.bodies import DataVersion, MessageRequestMode, decode_body
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.errors import WireError

# A page must fit into a frame even if all names are long.
PAGE_ROWS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Page:
    """The rows that a replica asks for, if it has the table's current version."""

    first: int
    count: int
    version: DataVersion | None

    def rows(self, table: Table) -> Mapping[str, object]:
        """The rows; a replica with an older version starts again from row 0."""
        return table.page(self.first if self.version == table.version else 0, self.count)


class TimerState(Protocol):
    """What a replica asks the timer."""

    def checkpoint(self) -> bytes:
        """56 bytes: read time, log position, queue offsets, version."""
        ...

    def metrics(self) -> bytes:
        """JSON with dataVersion and timingCount."""
        ...


def handlers(ctx: BrokerContext, timer: Callable[[], TimerState | None] = lambda: None) -> dict[int, Handler]:
    tables = MetadataHandlers(ctx, timer)
    return {
        TOPICS.request_code: tables.topics,
        GROUPS.request_code: tables.groups,
        OFFSETS.request_code: tables.offsets,
        DELAY_OFFSETS.request_code: tables.delay_offsets,
        REQUEST_MODES.request_code: tables.request_modes,
        RequestCode.SET_MESSAGE_REQUEST_MODE: tables.set_request_mode,
        RequestCode.GET_TIMER_CHECK_POINT: tables.timer_checkpoint,
        RequestCode.GET_TIMER_METRICS: tables.timer_metrics,
    }


class MetadataHandlers:
    """Answers from the tables as they are at this moment."""

    def __init__(self, ctx: BrokerContext, timer: Callable[[], TimerState | None]) -> None:
        self._ctx = ctx
        self._timer = timer
        self._mapping_version = msgspec.json.encode(DataVersion(timestamp=ctx.started_ms))

    async def topics(self, request: Request) -> Command:
        table = self._ctx.topics
        page = self._page(request, TOPICS_PAGING)

        def begin() -> Callable[[], tuple[int, bytes]]:
            rows = _rows(table, page)
            body = encode_object(
                [
                    ("dataVersion", msgspec.json.encode(table.version)),
                    ("mappingDataVersion", self._mapping_version),
                    ("topicConfigTable", encode_rows(rows)),
                    ("topicQueueMappingDetailMap", b"{}"),
                    ("topicQueueMappingInfoMap", b"{}"),
                ]
            )
            return partial(_with_total, len(table), body)

        total, body = await self._ctx.table_work.beside_loop(TOPICS.name, page, begin)
        return request.reply(fields={TOPICS_PAGING.total_field: str(total)}, body=body)

    async def groups(self, request: Request) -> Command:
        table = self._ctx.groups
        page = self._page(request, GROUPS_PAGING)

        def begin() -> Callable[[], tuple[int, bytes]]:
            rows = _rows(table, page)
            forbidden = {
                name: topics for name, topics in table.forbidden.items() if name in rows or len(rows) == len(table)
            }
            body = encode_object(
                [
                    ("dataVersion", msgspec.json.encode(table.version)),
                    ("forbiddenTable", msgspec.json.encode(forbidden)),
                    ("subscriptionGroupTable", encode_rows(rows)),
                ]
            )
            return partial(_with_total, len(table), body)

        total, body = await self._ctx.table_work.beside_loop(GROUPS.name, page, begin)
        return request.reply(fields={GROUPS_PAGING.total_field: str(total)}, body=body)

    def _page(self, request: Request, paging: Paging) -> Page | None:
        """The page that was asked for; None means all rows. The rows are read later, when the work's turn comes."""
        fields, settings = request.fields or {}, self._ctx.settings
        asked = [name for name in (paging.start_field, paging.count_field, "dataVersion") if name in fields]
        if not settings.metadata_split or not asked:
            return None
        count = min(settings.metadata_split_rows, PAGE_ROWS_MAX)
        wanted = _number(fields.get(paging.count_field))
        if wanted is not None and wanted >= 0:
            count = min(count, wanted)
        return Page(_number(fields.get(paging.start_field)) or 0, count, _version(fields.get("dataVersion")))

    async def offsets(self, request: Request) -> Command:
        def begin() -> Callable[[], bytes]:
            body = self._ctx.offsets.encode()
            return partial(joined, body)

        return request.reply(body=await self._ctx.table_work.beside_loop(OFFSETS.name, None, begin))

    def delay_offsets(self, request: Request) -> Command:
        if not getattr(self._ctx.store, "keeps_delay_offsets", False):  # a plug-in's own store; Java's spelling
            return request.reply(ResponseCode.SYSTEM_ERROR, "Delay offset not supported in this messagetore")
        return request.reply(body=b"".join(self._ctx.delay_offsets.encode_file()))

    def request_modes(self, request: Request) -> Command:
        return request.reply(body=b"".join(self._ctx.request_modes.encode_file()))

    async def set_request_mode(self, request: Request) -> Command:
        ctx, mode = self._ctx, decode_body(MessageRequestMode, request.body)
        if mode.topic.startswith(RETRY_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if mode.topic not in ctx.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if mode.mode not in ("PULL", "POP"):
            remark = f"mode {mode.mode!r} is neither PULL nor POP; set one of them"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        if mode.mode == "POP":  # modes of a Java master are adopted as they are; here POP would do nothing
            remark = "mode POP would have no effect: consumers of this broker pull; set PULL"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if ensure_group(ctx, mode.consumer_group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        ctx.request_modes.set_mode(mode, ctx.clock_ms())
        await ctx.request_modes.saved()
        return request.reply()

    def timer_checkpoint(self, request: Request) -> Command:
        timer = self._timer()
        if timer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.reply(body=timer.checkpoint())

    def timer_metrics(self, request: Request) -> Command:
        timer = self._timer()
        if timer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return request.reply(body=timer.metrics())


def _rows(table: Table, page: Page | None) -> Mapping[str, object]:
    return dict(table.rows) if page is None else page.rows(table)


def _with_total(total: int, body: Iterable[bytes]) -> tuple[int, bytes]:
    return total, joined(body)


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _version(text: str | None) -> DataVersion | None:
    """The version that a replica holds; None when it is missing or invalid."""
    if not text or not text.strip():
        return None
    try:
        return decode_json(text.encode("utf-8", "surrogatepass"), DataVersion)
    except (WireError, ValueError, RecursionError):
        return None
