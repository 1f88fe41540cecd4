"""Requests that append or change something wait while it is in doubt whether this broker is still the master."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.wire.codes import RequestCode, ResponseCode

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

CHANGING = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)
"""Requests that change topics, groups or offsets, of which the master's are the truth."""


def guarded(ctx: BrokerContext, handler: Handler) -> Handler:
    """`handler`, called at once if this broker may acknowledge, or is a replica and refuses; else once it is known."""

    def handle(request: Request) -> object:
        if ctx.guard.is_valid or not ctx.is_master:
            return handler(request)
        if (why := ctx.guard.paused_for) is not None:
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        return handle_later(request)

    async def handle_later(request: Request) -> Answer:
        await ctx.until_confirmed()
        answer = handler(request)
        ctx.publish_appends()
        return await answer if inspect.isawaitable(answer) else answer

    return handle  # type: ignore[return-value]


def guarded_change(ctx: BrokerContext, handler: Handler) -> Handler:
    """As `guarded`, for a request of CHANGING: a master that finds that it was replaced refuses it."""

    def handle(request: Request) -> object:
        return handler(request) if ctx.guard.is_valid or not ctx.is_master else handle_later(request)

    async def handle_later(request: Request) -> Answer:
        await ctx.until_confirmed()
        if not ctx.is_master:
            name, address = ctx.settings.broker_name, ctx.settings.address
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{address} is not the master of {name} any more, so nothing was changed; ask the present master",
            )
        answer = handler(request)
        return await answer if inspect.isawaitable(answer) else answer

    return handle  # type: ignore[return-value]
