"""Showing and changing settings from afar: codes 26 and 25. Only keys on the allow-list change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from twinlog.broker.conf_file import write_settings
from twinlog.metadata.data_version import next_version
from twinlog.net.errors import RequestRefused
from twinlog.replication.errors import ReplicationError
from twinlog.settings.errors import SettingsError
from twinlog.settings.properties import format_properties
from twinlog.settings.updates import RoleWanted, UpdateRefused, plan_broker_update, split_role
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
        """Apply the whole update or nothing of it; it counts from the moment it is answered.

        A new brokerRole is no mere value: the broker takes the steps of a role change first.
        """
        text = _decoded(request.body)
        async with self._writing:  # two updates in a row must not forget each other
            try:
                role, rest = split_role(text, self._ctx.conf)
                plan_broker_update(self._ctx.conf, rest)
                if role is not None:
                    await self._change_role(role)
                plan = plan_broker_update(self._ctx.conf, rest)
            except UpdateRefused as refused:
                raise RequestRefused(ResponseCode.NO_PERMISSION, str(refused)) from None
            except SettingsError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if plan.ignored:
                log.warning("an update names keys that nothing reads", keys=",".join(plan.ignored))
            if plan.changed:
                await self._apply(plan.settings, plan.changed, request.connection.peer_text)
        return request.reply()

    async def _change_role(self, wanted: RoleWanted) -> None:
        assert self._ctx.change_role is not None
        try:
            await self._ctx.change_role(wanted.role, wanted.broker_id)
        except ReplicationError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._version = next_version(self._version, self._ctx.clock_ms())

    async def _apply(self, conf: BrokerConf, changed: Mapping[str, str], peer: str) -> None:
        ctx, now_ms = self._ctx, self._ctx.clock_ms()
        ctx.replace_conf(conf)
        self._version = next_version(self._version, now_ms)
        log.info("settings changed", peer=peer, **changed)
        if PERMISSION_KEY in changed:  # it masks what every topic allows, so routes are new
            ctx.topics.advance(now_ms)
            ctx.notify_topic_changed(tuple(ctx.topics.rows))
        await write_settings(conf, changed)


def _decoded(body: bytes | None) -> str:
    try:
        return (body or b"").decode()
    except UnicodeDecodeError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8: {error}") from None
