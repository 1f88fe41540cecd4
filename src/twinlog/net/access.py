"""Handlers behind a gate and beside the audit log: a request that may not go on never reaches its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.net.local_admin import is_administration
from twinlog.security.audit import AuditLog, audit_line
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import ResponseCode
from twinlog.wire.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinlog.net.connection import Answer, Handler, Request
    from twinlog.security.gate import Gate
    from twinlog.settings.access import AccessSettings

log = get_logger(__name__)


def protected(handlers: Mapping[int, Handler], gate: Gate) -> dict[int, Handler]:
    """The same handlers, each for those requests only that the gate lets pass."""

    def behind(handler: Handler) -> Handler:
        def handle(request: Request) -> Answer | Awaitable[Answer]:
            remark = gate.refusal(request, request.connection.peer[0])
            if remark is None:
                return handler(request)
            log.warning("a request was refused", peer=request.connection.peer_text, code=request.code, remark=remark)
            return request.reply(gate.code, remark)

        return handle

    return {code: behind(handler) for code, handler in handlers.items()}


def check_topic(gate: Gate | None, request: Request, topic: str, actions: tuple[str, ...]) -> None:
    """RequestRefused when the signer may not do any of `actions` with the topic of a message.

    For requests that name a message by its place in the log: Java believes the topic that they name beside it.
    """
    remark = None if gate is None else gate.topic_refusal(request, topic, actions, request.connection.peer[0])
    if gate is not None and remark is not None:
        log.warning("a request was refused", peer=request.connection.peer_text, code=request.code, remark=remark)
        raise RequestRefused(gate.code, remark)


def open_audit_log(settings: AccessSettings, default_dir: str | Path, now_ms: Callable[[], int]) -> AuditLog | None:
    """The audit log that the settings name; None when it is switched off."""
    if not settings.audit_log:
        return None
    path = Path(settings.audit_file) if settings.audit_file else Path(settings.accounts_dir or default_dir, "audit.log")
    return AuditLog(path, settings.audit_bytes_max, settings.audit_files_max, now_ms)


def audited(handlers: Mapping[int, Handler], audit: AuditLog | None, gate: Gate | None) -> dict[int, Handler]:
    """The same handlers; each administration request leaves a line, whether it was refused or not.

    The line names the account that has signed the request, which is not always the one that the request names.
    """
    if audit is None:
        return dict(handlers)

    def note(request: Request, account: str | None, result: int, remark: str | None) -> None:
        peer, now = request.connection.peer_text, audit.now_ms()
        line = audit_line(now, account, peer, request.code, request.fields or {}, request.body, result, remark)
        is_refused = result == (ResponseCode.NO_PERMISSION if gate is None else gate.code)
        (audit.write_refused if account is None and is_refused else audit.write)(line)

    def noted(request: Request, account: str | None, answer: Answer) -> Answer:
        if isinstance(answer, Command):
            note(request, account, answer.code, answer.remark)
        return answer

    def failed(request: Request, account: str | None, error: Exception) -> None:
        if isinstance(error, RequestRefused):
            note(request, account, error.code, error.remark)
        else:
            note(request, account, ResponseCode.SYSTEM_ERROR, str(error))

    async def later(request: Request, account: str | None, pending: Awaitable[Answer]) -> Answer:
        try:
            return noted(request, account, await pending)
        except Exception as error:
            failed(request, account, error)
            raise

    def beside(handler: Handler) -> Handler:
        def handle(request: Request) -> Answer | Awaitable[Answer]:
            account = gate.signer(request) if gate is not None else None  # now: it may delete itself
            try:
                result = handler(request)
            except Exception as error:
                failed(request, account, error)
                raise
            return later(request, account, result) if isinstance(result, Awaitable) else noted(request, account, result)

        return handle

    return {code: beside(handler) if is_administration(code) else handler for code, handler in handlers.items()}
