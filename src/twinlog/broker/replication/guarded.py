"""Requests that append to the log wait while it is in doubt whether this broker is still the master."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from twinlog.wire.codes import RequestCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Answer, Handler, Request

APPENDING = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)


def guarded(ctx: BrokerContext, handler: Handler) -> Handler:
    """`handler`, called at once if this broker may acknowledge, or is a replica and refuses; else once it is known."""

    def handle(request: Request) -> object:
        return handler(request) if ctx.guard.is_valid or not ctx.is_master else handle_later(request)

    async def handle_later(request: Request) -> Answer:
        await ctx.until_confirmed()
        answer = handler(request)
        ctx.publish_appends()
        return await answer if inspect.isawaitable(answer) else answer

    return handle  # type: ignore[return-value]
