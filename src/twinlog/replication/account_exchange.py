"""Accounts on their way from a master to its replica.

A Twinlog master is asked with the edition that the replica holds, and answers with all accounts, or nothing when they
have not changed. Secrets are sealed with a key that only holders of the asking account's secret can make, so that a
connection in clear text does not show them. A Java master lists users with their passwords, and policies (3005, 3010).

    request field:  held = "epoch:revision"
    answer:         field held, body {"version": 1, "accounts": [...]}; no body when nothing changed
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from twinlog.replication.errors import ReplicationError
from twinlog.security.account_file import decode_accounts, encode_accounts
from twinlog.security.errors import AccountRefused
from twinlog.security.sealing import seal_between
from twinlog.security.users import DISABLED, NORMAL, SUPER, Account, AclInfo, UserInfo, read_policies
from twinlog.wire.errors import BodyError

HELD = "held"
_NAME = "User:"


class AccountsRefused(ReplicationError):
    """Accounts of a master that must not replace those of its replica."""


def encode_answer(accounts: Mapping[str, Account], asking: Account) -> bytes:
    """The body for a replica that asks with this account."""
    return encode_accounts(accounts.values(), seal_between(asking.secret))


def decode_answer(body: bytes, secret_key: str) -> list[Account]:
    """The accounts in a Twinlog master's answer."""
    try:
        return checked(list(decode_accounts(body, seal_between(secret_key)).values()))
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the master's accounts are not readable: {error}") from error


def decode_java(users: bytes | None, acls: bytes | None) -> list[Account]:
    """The accounts in a Java master's two lists."""
    try:
        listed = msgspec.json.decode(users or b"[]", type=list[UserInfo])
        policies = msgspec.json.decode(acls or b"[]", type=list[AclInfo])
    except (ValueError, RecursionError) as error:
        raise BodyError(f"the master's users or policies are not readable: {error}") from error
    by_name = {(acl.subject or "").removeprefix(_NAME): acl for acl in policies}
    return checked([_account(user, by_name.get(user.username or "")) for user in listed if user.username])


def checked(accounts: list[Account]) -> list[Account]:
    """The accounts, unless nobody could manage the replica with them."""
    if not any(account.is_super and account.status != DISABLED for account in accounts):
        raise AccountsRefused("the master's accounts have no super user that is enabled; they are not taken over")
    return accounts


def _account(user: UserInfo, acl: AclInfo | None) -> Account:
    if not user.password:
        raise AccountsRefused(f"the master does not give the secret of user {user.username}; accounts stay as they are")
    try:
        policies = read_policies(acl) if acl is not None else ()
    except AccountRefused as error:
        raise BodyError(f"a policy of user {user.username} is not readable: {error}") from error
    kind = SUPER if (user.user_type or "").lower() == SUPER.lower() else NORMAL
    status = DISABLED if (user.user_status or "").lower() == DISABLED else "enable"
    return Account(user.username or "", user.password, kind, status, policies)
