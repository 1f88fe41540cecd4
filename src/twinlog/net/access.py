"""Handlers behind a gate: a request that may not go on gets NO_PERMISSION, and never reaches its handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.net.connection import Answer, Awaitable, Handler, Request
    from twinlog.security.gate import Gate

log = get_logger(__name__)


def protected(handlers: Mapping[int, Handler], gate: Gate) -> dict[int, Handler]:
    """The same handlers, each for those requests only that the gate lets pass."""

    def behind(handler: Handler) -> Handler:
        def handle(request: Request) -> Answer | Awaitable[Answer]:
            remark = gate.refusal(request, request.connection.peer[0])
            if remark is None:
                return handler(request)
            log.warning("a request was refused", peer=request.connection.peer_text, code=request.code, remark=remark)
            return request.reply(ResponseCode.NO_PERMISSION, remark)

        return handle

    return {code: behind(handler) for code, handler in handlers.items()}
