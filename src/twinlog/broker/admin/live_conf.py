"""Settings that change while the broker runs: one update at a time, in memory and in the operator's file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinlog.settings.conf_file import rewrite_file
from twinlog.settings.errors import SettingsError
from twinlog.settings.updates import plan_broker_update, split_role
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinlog.broker.context import BrokerContext
    from twinlog.settings.broker_conf import BrokerConf

log = get_logger(__name__)
PERMISSION_KEY = "brokerPermission"


class LiveConf:
    """Applies updates, one after the other."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._updating = asyncio.Lock()
        self.version = DataVersion(timestamp=ctx.started_ms)

    async def update(self, text: str, peer: str) -> str:
        """Apply the whole update, or raise SettingsError or ReplicationError and change nothing.

        Returns the keys that nothing reads, as text; as in Java, they do not keep the others from being applied.
        A new brokerRole is more than a value: the broker takes the steps of a role change first.
        """
        ctx = self._ctx
        async with self._updating:  # one after the other: each starts from the settings that the last one made
            role, rest = split_role(text, ctx.conf)
            plan = plan_broker_update(ctx.conf, rest)
            if role is not None:
                assert ctx.change_role is not None
                await ctx.change_role(role.role, role.broker_id)
                self._advance()
                plan = plan_broker_update(ctx.conf, rest)  # the role is part of the settings
            if plan.ignored:
                log.warning("an update names keys that nothing reads", keys=plan.ignored_text)
            for warning in plan.warnings:
                log.warning(warning, peer=peer)
            if plan.changed:
                self._apply(plan.settings, plan.changed)
                log.info("settings changed", peer=peer, **plan.changed)
                await write_settings(plan.settings, plan.changed)
            return plan.ignored_text

    def _apply(self, conf: BrokerConf, changed: Mapping[str, str]) -> None:
        ctx = self._ctx
        ctx.replace_conf(conf)
        self._advance()
        if PERMISSION_KEY in changed:  # it masks the permission of every topic, so all routes change
            ctx.topics.advance(ctx.clock_ms())
            ctx.notify_topic_changed(tuple(ctx.topics.rows))

    def _advance(self) -> None:
        self.version = self.version.next(self._ctx.clock_ms())


async def write_settings(conf: BrokerConf, changed: Mapping[str, str]) -> None:
    """Set these keys in the file that `conf` was read from; logs an error if it cannot be written."""
    if conf.path is None:
        return
    try:
        await asyncio.to_thread(rewrite_file, conf.path, changed)
    except (OSError, SettingsError) as error:
        log.error(
            "settings changed until the next start only: write them into the file by hand",
            path=conf.path,
            error=str(error),
            **changed,
        )
