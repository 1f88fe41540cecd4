"""Showing and changing settings from afar: codes 26 and 25. Only keys on the allow-list change."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec

from twinlog.metadata.data_version import next_version
from twinlog.net.errors import RequestRefused
from twinlog.settings.broker_conf import read_text
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import format_properties, replace_values
from twinlog.settings.updates import UpdateRefused, plan_broker_update
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import DataVersion
from twinlog.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.wire.command import Command

log = get_logger(__name__)
PERMISSION_KEY = "brokerPermission"


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    config = ConfigHandlers(ctx)
    return {RequestCode.GET_BROKER_CONFIG: config.show, RequestCode.UPDATE_BROKER_CONFIG: config.update}


class ConfigHandlers:
    """The settings in use, as properties text."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._version = DataVersion(timestamp=ctx.started_ms)
        self._writing = asyncio.Lock()

    def show(self, request: Request) -> Command:
        body = format_properties(self._ctx.conf.properties()).encode()
        return request.reply(fields={"version": msgspec.json.encode(self._version).decode()}, body=body)

    async def update(self, request: Request) -> Command:
        """Apply the whole update or nothing of it; it counts from the moment it is answered."""
        text = _decoded(request.body)
        async with self._writing:  # two updates in a row must not forget each other
            try:
                plan = plan_broker_update(self._ctx.conf, text)
            except UpdateRefused as refused:
                raise RequestRefused(ResponseCode.NO_PERMISSION, str(refused)) from None
            except SettingsError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if plan.ignored:
                log.warning("an update names keys that nothing reads", keys=",".join(plan.ignored))
            if plan.changed:
                await self._apply(plan.settings, plan.changed, request.connection.peer_text)
        return request.reply()

    async def _apply(self, conf: BrokerConf, changed: Mapping[str, str], peer: str) -> None:
        ctx, now_ms = self._ctx, self._ctx.clock_ms()
        ctx.replace_conf(conf)
        self._version = next_version(self._version, now_ms)
        log.info("settings changed", peer=peer, **changed)
        if PERMISSION_KEY in changed:  # it masks what every topic allows, so routes are new
            ctx.topics.advance(now_ms)
            ctx.notify_topic_changed(tuple(ctx.topics.rows))
        if conf.path is not None:
            try:
                await asyncio.to_thread(rewrite_file, conf.path, changed)
            except OSError as error:
                log.error("changed settings cannot be written to their file", path=conf.path, error=str(error))


def rewrite_file(path: str, changed: Mapping[str, str]) -> None:
    """Set these keys in the operator's file; comments and all other lines stay."""
    text = replace_values(read_text(path), changed)
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


def _decoded(body: bytes | None) -> str:
    try:
        return (body or b"").decode()
    except UnicodeDecodeError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8: {error}") from None
