"""The answer to a request whose handler failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.errors import WireError

if TYPE_CHECKING:
    from twinlog.net.connection import Request
    from twinlog.wire.command import Command

log = get_logger(__name__)


def answer_for_error(request: Request, error: Exception) -> Command:
    """The response to a request that failed with `error`; only unexpected errors are logged."""
    if isinstance(error, RequestRefused):
        return request.reply(error.code, error.remark, error.fields)
    if isinstance(error, OSError):  # the disk or the network: a traceback would not help
        log.error("a request failed", code=_name(request.code), peer=request.connection.peer_text, error=str(error))
    elif not isinstance(error, WireError):
        log.error("a handler failed", code=_name(request.code), peer=request.connection.peer_text, exc_info=error)
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)
