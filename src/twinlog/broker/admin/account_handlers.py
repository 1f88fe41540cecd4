"""Users and their policies by request (3001 to 3010). The rules are in `security.account_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.security.account_requests import ACCOUNT_CODES, answer
from twinlog.security.errors import AccountRefused
from twinlog.security.signatures import ACCESS_KEY
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command

_OFF = "access control is not configured in this broker; set authenticationEnabled=true and restart it"


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    accounts = AccountHandlers(ctx)
    return dict.fromkeys(ACCOUNT_CODES, accounts.handle)


class AccountHandlers:
    """A change is on disk, and counts for the next request, before its answer leaves."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    async def handle(self, request: Request) -> Command:
        table, fields = self._ctx.tables.accounts, request.fields or {}
        if not table.in_use:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _OFF)
        try:
            # The gate has checked who asks, or the operator lets anyone ask.
            outcome = answer(request.code, fields, request.body, table.rows, table.get(fields.get(ACCESS_KEY, "")))
        except AccountRefused as refused:
            raise RequestRefused(refused.code, refused.remark) from None
        if outcome.put is None and outcome.removed is None:
            return request.reply(body=outcome.body)
        if not self._ctx.is_master:
            remark = f"accounts are changed on the master of {self._ctx.settings.broker_name}; this is a replica"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        if outcome.put is not None:
            table.put(outcome.put.username, outcome.put, self._ctx.clock_ms())
        if outcome.removed is not None:
            table.remove(outcome.removed, self._ctx.clock_ms())
        await table.saved()
        return request.reply(body=outcome.body)
