"""A replica that checks accounts takes over those of its master; without accounts of its own it asks for none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.metadata import accounts
from twinlog.replication.account_exchange import HELD, decode_answer, decode_java
from twinlog.replication.replica.metadata_status import MasterRefused
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.twinlog_codes import TwinlogCode

if TYPE_CHECKING:
    from twinlog.metadata.accounts import AccountTable
    from twinlog.net.pool import ConnectionPool
    from twinlog.security.users import Account

_TIMEOUT_MS = 3000


class AccountSync:
    """Makes the accounts of a replica equal to its master's."""

    name = accounts.KIND

    def __init__(self, table: AccountTable, secret_key: str) -> None:
        self._table = table
        self._secret_key = secret_key
        self._held = ""
        self._own_edition = -1  # of the table here, after the last answer
        self._master = ""

    async def fetch(self, pool: ConnectionPool, master: str) -> tuple[bool, int]:
        """(whether accounts changed here, bytes received)."""
        if master != self._master or self._table.edition != self._own_edition:
            self._held, self._master = "", master
        answer = await pool.request(master, TwinlogCode.ACCOUNTS, {HELD: self._held}, timeout_ms=_TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return await self._fetch_from_java(pool, master)
        if answer.code != ResponseCode.SUCCESS:
            raise MasterRefused(self.name, answer.code, answer.remark)
        changed = False
        if answer.body:
            changed = await self._adopt(decode_answer(answer.body, self._secret_key))
        self._held, self._own_edition = (answer.fields or {}).get(HELD, ""), self._table.edition
        return changed, len(answer.body or b"")

    async def _fetch_from_java(self, pool: ConnectionPool, master: str) -> tuple[bool, int]:
        bodies: list[bytes | None] = []
        for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL):
            answer = await pool.request(master, code, {}, timeout_ms=_TIMEOUT_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False, 0  # 4.9 keeps its accounts in a file, which an operator copies
            if answer.code != ResponseCode.SUCCESS:
                raise MasterRefused(self.name, answer.code, answer.remark)
            bodies.append(answer.body)
        changed = await self._adopt(decode_java(*bodies))
        return changed, sum(len(body or b"") for body in bodies)

    async def _adopt(self, found: list[Account]) -> bool:
        changed = self._table.adopt_accounts(found)
        await self._table.saved()
        return changed
