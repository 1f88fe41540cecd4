"""Accounts as a metadata table: name -> account, saved sealed in accounts.json.

The rows hold secrets, so this table has a file and a way to replicas of its own (`replication.account_exchange`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twinlog.metadata.persisted import PendingSave
from twinlog.metadata.table import Table
from twinlog.security.account_file import AccountFile
from twinlog.security.users import Account

KIND = "accounts"


class AccountTable(Table[Account]):
    """The accounts of a broker; without a file, access control is off and there are none."""

    def __init__(self, accounts_file: AccountFile | None = None, now_ms: int = 0, epoch: str | None = None) -> None:
        super().__init__(None, now_ms, epoch)
        self._accounts_file = accounts_file

    @property
    def in_use(self) -> bool:
        return self._accounts_file is not None

    @property
    def file_name(self) -> str:
        return self._accounts_file.path.name if self._accounts_file is not None else ""

    def load(self) -> bool:
        """Load the file; AccountsBroken stops the start."""
        if self._accounts_file is None:
            return False
        accounts = self._accounts_file.load()
        self.restore_rows(accounts, None)
        return bool(accounts)

    def begin_save(self) -> PendingSave | None:
        if self._accounts_file is None or not self.dirty:
            return None
        return PendingSave(self, self.edition, self._accounts_file.encoded(list(self.rows.values())))

    def write_pending(self, pending: PendingSave) -> None:
        assert self._accounts_file is not None
        with self._write_lock:
            if pending.edition > self._saved_edition:
                self._accounts_file.save(pending.chunks)
                self._saved_edition = pending.edition

    def is_saved(self, edition: int) -> bool:
        return self._accounts_file is None or edition <= self._saved_edition

    def adopt_accounts(self, accounts: Iterable[Account]) -> bool:
        """Become equal to the master's accounts; False when nothing changed."""
        rows: Mapping[str, Account] = {account.username: account for account in accounts}
        return self.adopt(rows, self.version)
