"""accounts.json: users, sealed secrets and policies. A file that cannot be read stops the start of its server.

{"version": 1, "accounts": [{"username", "secret": sealed, "type", "status", "policies": [...]}, ...]}
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from twinlog.base.atomic_file import keep_backup, refuse_links, replace_file, sibling
from twinlog.base.safe_files import read_file
from twinlog.security.errors import AccountsBroken
from twinlog.security.sealing import Seal, load_seal
from twinlog.security.users import NORMAL, SUPER, Account
from twinlog.settings.access import AccessSettings, first_user
from twinlog.settings.accounts import parse_account

FILE_NAME = "accounts.json"
KEY_NAME = "accounts.key"
_VERSION = 1


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    accounts: list[Account]


class AccountFile:
    """The file of one server's accounts."""

    def __init__(self, path: Path, seal: Seal) -> None:
        self.path = path
        self._seal = seal

    def load(self) -> dict[str, Account]:
        """The accounts; none when there is no file. AccountsBroken for anything that cannot be read whole."""
        try:
            refuse_links(self.path)
            data = read_file(self.path)
        except FileNotFoundError:
            if sibling(self.path, "bak").exists():
                raise AccountsBroken(f"{self.path} is missing, and its backup is not; {self._advice}") from None
            return {}
        try:
            return decode_accounts(data, self._seal)
        except (ValueError, RecursionError) as error:
            raise AccountsBroken(f"{self.path} cannot be read ({error}); {self._advice}") from None

    def encoded(self, accounts: Iterable[Account]) -> Iterator[bytes]:
        """The content for these accounts, made when it is asked for."""
        yield encode_accounts(accounts, self._seal)

    def save(self, chunks: Iterable[bytes]) -> None:
        """Replace the content; nobody but its owner may read it."""
        replace_file(self.path, chunks, keep_old=_keep_private)

    @property
    def _advice(self) -> str:
        """A backup may have an account that was deleted since, so an operator decides about it."""
        backup = sibling(self.path, "bak")
        return f"look whether {backup} is right and copy it over, or remove both and create the accounts again"


def encode_accounts(accounts: Iterable[Account], seal: Seal) -> bytes:
    sealed = [
        msgspec.structs.replace(account, secret=seal.seal(account.username, account.secret))
        for account in sorted(accounts, key=lambda one: one.username)
    ]
    return msgspec.json.format(msgspec.json.encode(_File(_VERSION, sealed)), indent=1) + b"\n"


def decode_accounts(data: bytes, seal: Seal) -> dict[str, Account]:
    """The accounts in a file's content, or ValueError."""
    found = msgspec.json.decode(data, type=_File)
    if found.version != _VERSION:
        raise ValueError(f"version {found.version} is not {_VERSION}; a newer Twinlog wrote it")
    accounts = {
        one.username: msgspec.structs.replace(one, secret=seal.open(one.username, one.secret)) for one in found.accounts
    }
    if len(accounts) != len(found.accounts):
        raise ValueError("an account is there twice")
    if odd := [one.username for one in found.accounts if one.type not in (SUPER, NORMAL)]:
        raise ValueError(f"account {odd[0]!r} is neither {SUPER} nor {NORMAL}")
    return accounts


def open_account_file(settings: AccessSettings, default_dir: str | os.PathLike[str]) -> AccountFile:
    """The file that the settings name, with the key for its secrets."""
    path = Path(settings.accounts_dir or default_dir, FILE_NAME)
    key_file = Path(settings.accounts_key_file) if settings.accounts_key_file else path.with_name(KEY_NAME)
    return AccountFile(path, load_seal(key_file, path))


def first_accounts(settings: AccessSettings, own_account: str | None = None) -> list[Account]:
    """The accounts that the settings name. Those of a name that exists already are not used, as in Java."""
    given: list[tuple[str, str]] = []
    if settings.init_user:
        given.append(first_user(settings.init_user))
    if own_account:
        given.append(parse_account(own_account))
    return [Account(name, secret, SUPER) for name, secret in given]


def _keep_private(path: Path) -> None:
    """Keep the old content, and take from others the right to read a file that was copied here by hand."""
    keep_backup(path)
    for one in (sibling(path, "tmp"), sibling(path, "bak")):
        if one.exists() and stat.S_IMODE(one.stat().st_mode) & 0o077:
            one.chmod(0o600)
