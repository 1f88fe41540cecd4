"""Showing and changing the name server's settings (319, 318)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from twinlog.nameserver.context import NameServerContext
from twinlog.nameserver.request_checks import not_written
from twinlog.net.connection import Handler, Request
from twinlog.net.errors import RequestRefused
from twinlog.settings.conf_file import rewrite_file
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import format_properties
from twinlog.settings.updates import UpdateRefused, plan_nameserver_update
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command

log = get_logger(__name__)


def handlers(ctx: NameServerContext) -> dict[int, Handler]:
    config = ConfigHandlers(ctx)
    return {RequestCode.GET_NAMESRV_CONFIG: config.show, RequestCode.UPDATE_NAMESRV_CONFIG: config.update}


class ConfigHandlers:
    """The settings in use, as properties text. An update is in the operator's file before it takes effect."""

    def __init__(self, ctx: NameServerContext) -> None:
        self._ctx = ctx
        self._updating = asyncio.Lock()

    def show(self, request: Request) -> Command:
        return request.reply(body=format_properties(self._ctx.conf.properties()).encode())

    async def update(self, request: Request) -> Command:
        ctx = self._ctx
        async with self._updating:  # one after the other: each starts from the settings that the last one made
            try:
                text = (request.body or b"").decode()
                update = plan_nameserver_update(ctx.settings, text)
            except UpdateRefused as refusal:
                raise RequestRefused(ResponseCode.NO_PERMISSION, str(refusal)) from refusal
            except (SettingsError, UnicodeDecodeError) as problem:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(problem)) from problem
            if update.ignored:
                log.warning("an update names keys that nothing reads", keys=update.ignored_text)
            if update.changed:
                await asyncio.to_thread(self._write, update.changed)
                ctx.conf = dataclasses.replace(ctx.conf, nameserver=update.settings)
                log.info("settings were changed by request", peer=request.connection.peer_text, **update.changed)
        return request.reply(remark=f"nothing reads {update.ignored_text}" if update.ignored else None)

    def _write(self, changed: Mapping[str, str]) -> None:
        path = self._ctx.settings.config_path
        try:
            rewrite_file(path, changed, missing_ok=True)
        except (OSError, SettingsError) as error:
            raise not_written(f"settings cannot be written to {path}: {error}") from error
