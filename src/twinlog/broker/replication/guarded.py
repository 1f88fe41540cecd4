"""Requests that append to the log wait while it is in doubt whether this broker is still the master."""

from __future__ import annotations

import asyncio
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
    }
)


def guarded(ctx: BrokerContext, handler: Handler) -> Handler:
    """`handler`, called at once if this broker may acknowledge, else once that is confirmed."""

    def handle(request: Request) -> object:
        return handler(request) if ctx.guard.is_valid else handle_later(request)

    async def handle_later(request: Request) -> Answer:
        confirmed = asyncio.Event()
        ctx.guard.when_confirmed(confirmed.set)
        await confirmed.wait()
        answer = handler(request)
        ctx.publish_appends()
        return await answer if inspect.isawaitable(answer) else answer

    return handle  # type: ignore[return-value]
