"""Showing and changing settings by request (26, 25). Only keys on the allow-list can be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from twinlog.broker.admin.live_conf import LiveConf
from twinlog.net.errors import RequestRefused
from twinlog.replication.errors import ReplicationError
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import format_properties
from twinlog.settings.updates import UpdateRefused
from twinlog.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    config = ConfigHandlers(ctx, LiveConf(ctx))
    return {RequestCode.GET_BROKER_CONFIG: config.show, RequestCode.UPDATE_BROKER_CONFIG: config.update}


class ConfigHandlers:
    """The settings in use, as properties text."""

    def __init__(self, ctx: BrokerContext, live: LiveConf) -> None:
        self._ctx = ctx
        self._live = live

    def show(self, request: Request) -> Command:
        body = format_properties(self._ctx.conf.properties()).encode()
        return request.reply(fields={"version": msgspec.json.encode(self._live.version).decode()}, body=body)

    async def update(self, request: Request) -> Command:
        """The change is in effect before the answer leaves."""
        try:
            ignored = await self._live.update(_decoded(request.body), request.connection.peer_text)
        except UpdateRefused as refused:
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(refused)) from None
        except (SettingsError, ReplicationError) as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return request.reply(remark=f"nothing reads {ignored}" if ignored else None)


def _decoded(body: bytes | None) -> str:
    try:
        return (body or b"").decode()
    except UnicodeDecodeError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8: {error}") from None
