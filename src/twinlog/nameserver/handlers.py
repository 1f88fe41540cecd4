"""Everything a name server answers, by request code."""

from __future__ import annotations

from twinlog.nameserver import broker_handlers, config_handlers, kv_handlers, route_handlers, topic_handlers
from twinlog.nameserver.broker_handlers import RunBeside
from twinlog.nameserver.context import NameServerContext
from twinlog.net.connection import Handler


def handlers(ctx: NameServerContext, run_beside: RunBeside | None = None) -> dict[int, Handler]:
    """`run_beside` runs what would hold up other requests for long; without it, they are held up."""
    return {
        **broker_handlers.handlers(ctx, run_beside),
        **route_handlers.handlers(ctx),
        **topic_handlers.handlers(ctx),
        **kv_handlers.handlers(ctx),
        **config_handlers.handlers(ctx),
    }
