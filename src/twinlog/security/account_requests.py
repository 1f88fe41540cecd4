"""Requests about accounts (codes 3001 to 3010): what they change, and what they answer.

Passwords are never in an answer; Java gives them to every administrator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from twinlog.security.errors import AccountRefused
from twinlog.security.users import (
    Account,
    Accounts,
    AclInfo,
    UserInfo,
    created,
    find_subject,
    list_users,
    may_delete,
    shown_policies,
    shown_user,
    updated,
    with_policies,
    without_policies,
)
from twinlog.wire.codes import RequestCode, ResponseCode

S = TypeVar("S", bound=msgspec.Struct)
ACCOUNTS_MAX = 10_000  # Java has no limit
_BODY_BYTES_MAX = 256 * 1024
_SYSTEM_ERROR = "An system error occurred, please try again later."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request does; at most one account changes."""

    body: bytes | None = None
    put: Account | None = None
    removed: str | None = None


Fields = Mapping[str, str]


def answer(code: int, fields: Fields, body: bytes | None, accounts: Accounts, caller: Account | None) -> Outcome:
    """What a request about accounts does; AccountRefused when it must not. `caller` is None when nobody must sign."""
    by_super = caller is None or caller.is_super
    return _ANSWERS[code](fields, body, accounts, by_super)


def _create_user(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    account = created(accounts, fields.get("username"), _user_info(body), by_super=by_super)
    if len(accounts) >= ACCOUNTS_MAX:
        raise AccountRefused(f"there are {ACCOUNTS_MAX} users already; delete one first")
    return Outcome(put=account)


def _update_user(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    account = updated(accounts, fields.get("username"), _user_info(body), by_super=by_super)
    _keep_a_super(accounts, account.username, account)
    return Outcome(put=account)


def _delete_user(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    name = fields.get("username")
    if not may_delete(accounts, name, by_super=by_super):
        return Outcome()
    _keep_a_super(accounts, name or "", None)
    return Outcome(removed=name)


def _get_user(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    name = fields.get("username", "")
    if not name.strip():
        raise AccountRefused("The username is blank", ResponseCode.INVALID_PARAMETER)
    account = accounts.get(name)
    return Outcome(None if account is None else msgspec.json.encode(shown_user(account)))


def _list_users(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    users = list_users(accounts.values(), fields.get("filter"))
    return Outcome(msgspec.json.encode(users) if users else None)


def _set_acl(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    info = _decoded(body, AclInfo)
    if not info.policies:
        raise AccountRefused("The body of acl is null", ResponseCode.SYSTEM_ERROR)
    return Outcome(put=with_policies(accounts, info.subject or fields.get("subject"), info))


def _delete_acl(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    subject, policy_type, resource = (fields.get(name) for name in ("subject", "policyType", "resource"))
    return Outcome(put=without_policies(accounts, subject, policy_type, resource))


def _get_acl(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    shown = shown_policies(find_subject(accounts, fields.get("subject")))
    return Outcome(None if shown is None else msgspec.json.encode(shown))


def _list_acls(fields: Fields, body: bytes | None, accounts: Accounts, by_super: bool) -> Outcome:
    subject_filter, resource_filter = fields.get("subjectFilter", ""), fields.get("resourceFilter")
    found = [
        shown_policies(account, resource_filter)
        for _, account in sorted(accounts.items())
        if subject_filter in account.subject
    ]
    shown = [one for one in found if one is not None]
    return Outcome(msgspec.json.encode(shown) if shown else None)


_ANSWERS: dict[int, Callable[[Fields, bytes | None, Accounts, bool], Outcome]] = {
    RequestCode.AUTH_CREATE_USER: _create_user,
    RequestCode.AUTH_UPDATE_USER: _update_user,
    RequestCode.AUTH_DELETE_USER: _delete_user,
    RequestCode.AUTH_GET_USER: _get_user,
    RequestCode.AUTH_LIST_USER: _list_users,
    RequestCode.AUTH_CREATE_ACL: _set_acl,
    RequestCode.AUTH_UPDATE_ACL: _set_acl,
    RequestCode.AUTH_DELETE_ACL: _delete_acl,
    RequestCode.AUTH_GET_ACL: _get_acl,
    RequestCode.AUTH_LIST_ACL: _list_acls,
}
ACCOUNT_CODES = frozenset(_ANSWERS)


def _user_info(body: bytes | None) -> UserInfo:
    return _decoded(body, UserInfo)


def _decoded(body: bytes | None, kind: type[S]) -> S:
    try:
        if body is None or len(body) > _BODY_BYTES_MAX:
            raise ValueError
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        raise AccountRefused(_SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR) from None


def _keep_a_super(accounts: Accounts, name: str, after: Account | None) -> None:
    """Refuse to disable or remove the last account that can manage others; Java lets itself be locked."""
    left = [one for one in accounts.values() if one.username != name] + ([after] if after is not None else [])
    if not any(one.is_super and one.status == "enable" for one in left) and accounts[name].is_super:
        raise AccountRefused(f"User:{name} is the last super user that is enabled; create another one first")
