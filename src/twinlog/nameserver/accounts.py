"""The accounts of a name server: the same form as a broker's, in a file of its own. Java's name server has none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.security.account_file import AccountFile, first_accounts, open_account_file
from twinlog.security.account_requests import ACCOUNT_CODES, answer
from twinlog.security.errors import AccountRefused
from twinlog.security.gate import AccountGate
from twinlog.security.signatures import ACCESS_KEY

if TYPE_CHECKING:
    from twinlog.net.connection import Handler, Request
    from twinlog.security.users import Account
    from twinlog.settings.nameserver_conf import NameServerConf
    from twinlog.wire.command import Command

CLUSTER = "NameServer"  # the cluster resource of requests that name no cluster


class NameServerAccounts:
    """Accounts in memory and in their file; a change is on disk before it is answered."""

    def __init__(self, conf: NameServerConf) -> None:
        self._file: AccountFile = open_account_file(conf.access, os.path.dirname(conf.nameserver.kv_path) or ".")
        self.rows: Mapping[str, Account] = self._file.load()
        self.edition = 0
        new = {one.username: one for one in first_accounts(conf.access) if one.username not in self.rows}
        if new:
            self._replace({**self.rows, **new})
        self.gate = AccountGate(conf.access, CLUSTER, lambda: self.rows, lambda: self.edition)

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(ACCOUNT_CODES, self.handle)

    def handle(self, request: Request) -> Command:
        fields = request.fields or {}
        try:
            outcome = answer(request.code, fields, request.body, self.rows, self.rows.get(fields.get(ACCESS_KEY, "")))
        except AccountRefused as refused:
            raise RequestRefused(refused.code, refused.remark) from None
        if outcome.put is not None:
            self._replace({**self.rows, outcome.put.username: outcome.put})
        if outcome.removed is not None:
            self._replace({name: row for name, row in self.rows.items() if name != outcome.removed})
        return request.reply(body=outcome.body)

    def _replace(self, rows: Mapping[str, Account]) -> None:
        self._file.save(self._file.encoded(rows.values()))
        self.rows = rows
        self.edition += 1
