"""Accounts: a name, a secret, a type, a status and policies; and what may become of them by request.

Each function takes the accounts as they are and returns the account as it shall be, or raises with Java's remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from twinlog.security.errors import AccountRefused
from twinlog.security.policies import (
    ACTIONS,
    CUSTOM,
    DECISIONS,
    POLICY_TYPES,
    Entry,
    Policy,
    is_network,
    merged,
    parse_resource,
    without,
)
from twinlog.wire.codes import ResponseCode

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
_TYPES = {name.lower(): name for name in (SUPER, NORMAL)}
_STATUSES = {name: name for name in (ENABLED, DISABLED)}
NAME_LENGTH_MAX = 255  # of an account or a secret; Java has no limit
ENTRIES_MAX = 1_000  # rules of one account; Java has no limit
_USER = "user"


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One account with its policies. The secret itself is needed to check a signature."""

    username: str
    secret: str
    type: str = NORMAL
    status: str = ENABLED
    policies: tuple[Policy, ...] = ()

    def __repr__(self) -> str:
        return f"Account({self.username!r}, {self.type}, {self.status}, {len(self.policies)} policies)"

    @property
    def is_super(self) -> bool:
        return self.type == SUPER

    @property
    def subject(self) -> str:
        return f"User:{self.username}"


Accounts = Mapping[str, Account]


class UserInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """A user in the body of a request or an answer, members in Java's order. Answers never have the password."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


class EntryInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    entries: list[EntryInfo] | None = None
    policy_type: str | None = None


class AclInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """The policies of a user in the body of a request or an answer."""

    policies: list[PolicyInfo] | None = None
    subject: str | None = None


# -- users -------------------------------------------------------------------------------------


def created(accounts: Accounts, name: str | None, info: UserInfo, *, by_super: bool) -> Account:
    """A new account."""
    name = _checked_name(name)
    kind = _TYPES.get((info.user_type or "").lower())
    if kind == SUPER and not by_super:
        raise AccountRefused("The super user can only be create by super user", ResponseCode.SYSTEM_ERROR)
    if not (info.password or "").strip():
        raise AccountRefused("password can not be blank")
    if name in accounts:
        raise AccountRefused("The user is existed")
    _check_text("password", info.password or "")
    status = _STATUSES.get((info.user_status or "").lower())
    return Account(name, info.password or "", kind or NORMAL, status or ENABLED)


def updated(accounts: Accounts, name: str | None, info: UserInfo, *, by_super: bool) -> Account:
    """An account with those members changed that `info` has."""
    name = _checked_name(name)
    kind = _TYPES.get((info.user_type or "").lower())
    if kind == SUPER and not by_super:
        raise AccountRefused("The super user can only be update by super user", ResponseCode.SYSTEM_ERROR)
    old = accounts.get(name)
    if old is None:
        raise AccountRefused("The user is not exist")
    if old.is_super and not by_super:
        raise AccountRefused("The super user can only be update by super user")
    status = _STATUSES.get((info.user_status or "").lower())
    _check_text("password", info.password or "")
    secret = info.password if info.password and info.password.strip() else old.secret
    return Account(name, secret, kind or old.type, status or old.status, old.policies)


def may_delete(accounts: Accounts, name: str | None, *, by_super: bool) -> bool:
    """Whether there is an account of this name; it may be deleted then."""
    if name is None or not name.strip():
        raise AccountRefused("username can not be blank")
    old = accounts.get(name)
    if old is not None and old.is_super and not by_super:
        raise AccountRefused("The super user can only be update by super user")
    return old is not None


def shown_user(account: Account) -> UserInfo:
    """What an answer says of an account: everything but its secret."""
    return UserInfo(username=account.username, user_type=account.type, user_status=account.status)


# -- policies ----------------------------------------------------------------------------------


def with_policies(accounts: Accounts, subject: str | None, info: AclInfo) -> Account:
    """The account with policies added or replaced."""
    policies = read_policies(info)
    account = _subject(accounts, subject or info.subject)
    if account is None:
        raise AccountRefused(f"The subject of {subject or info.subject} is not exist.")
    changed = merged(account.policies, policies)
    if sum(len(policy.entries) for policy in changed) > ENTRIES_MAX:
        raise AccountRefused(f"{subject} would have more than {ENTRIES_MAX} policy entries; use prefixes")
    return msgspec.structs.replace(account, policies=changed)


def without_policies(accounts: Accounts, subject: str | None, policy_type: str | None, resource: str | None) -> Account:
    """The account without its policies, or without the entry for one resource."""
    account = _subject(accounts, subject)
    if account is None:
        raise AccountRefused("The subject is not exist." if _is_subject(subject) else "The subject is null.")
    if not account.policies:
        raise AccountRefused("The acl is not exist.")
    wanted = parse_resource(resource)
    kept: tuple[Policy, ...] = ()
    if wanted is not None:
        kept = without(account.policies, POLICY_TYPES.get((policy_type or "").lower(), CUSTOM), wanted)
    return msgspec.structs.replace(account, policies=kept)


def shown_policies(account: Account, resource_filter: str | None = None) -> AclInfo | None:
    """The policies of an account as an answer has them; None when there are none, or none that fit the filter."""
    shown: list[PolicyInfo] = []
    unfiltered = not resource_filter or resource_filter in account.subject
    for policy in account.policies:
        entries = [entry for entry in policy.entries if unfiltered or (resource_filter or "") in entry.resource]
        if entries:
            shown.append(PolicyInfo([_entry_info(entry) for entry in entries], policy.type))
    return AclInfo(shown, account.subject) if shown else None


def find_subject(accounts: Accounts, subject: str | None) -> Account:
    """The account that a request names as User:name."""
    account = _subject(accounts, subject)
    if account is None:
        raise AccountRefused("The subject is not exist.")
    return account


def read_policies(info: AclInfo) -> tuple[Policy, ...]:
    """The policies in a request, checked in Java's order."""
    found = [
        Policy(POLICY_TYPES.get((policy.policy_type or "").lower(), CUSTOM), _entries(policy.entries))
        for policy in info.policies or ()
        if policy.entries
    ]
    if not found:
        raise AccountRefused("The policies is empty.")
    return merged((), found)


def _entries(given: Sequence[EntryInfo]) -> tuple[Entry, ...]:
    return tuple(_entry(one) for one in given)


def _entry(given: EntryInfo) -> Entry:
    resource = parse_resource(given.resource)
    if resource is None:
        raise AccountRefused("The resource is null.")
    actions = tuple(dict.fromkeys(ACTIONS[name.lower()] for name in given.actions or () if name.lower() in ACTIONS))
    if not actions:
        raise AccountRefused("The actions is empty.")
    if "Any" in actions:
        raise AccountRefused("The actions can not be Any.")
    for source in given.source_ips or ():
        if not source.strip():
            raise AccountRefused("The source ip is empty.")
        if not is_network(source):
            raise AccountRefused("The source ip is invalid.")
    decision = DECISIONS.get((given.decision or "").lower())
    if decision is None:
        raise AccountRefused("The decision is null or illegal.")
    _check_text("resource", str(resource))
    return Entry(str(resource), actions, decision, tuple(given.source_ips or ()))


def _entry_info(entry: Entry) -> EntryInfo:
    return EntryInfo(list(entry.actions), entry.decision, entry.resource, list(entry.source_ips) or None)


def _is_subject(text: str | None) -> bool:
    return (text or "").partition(":")[0].lower() == _USER


def _subject(accounts: Accounts, text: str | None) -> Account | None:
    return accounts.get((text or "").partition(":")[2]) if _is_subject(text) else None


def _checked_name(name: str | None) -> str:
    if not name:
        raise AccountRefused("The username is blank", ResponseCode.INVALID_PARAMETER)
    if not name.strip():
        raise AccountRefused("username can not be blank")
    _check_text("username", name)
    return name


def _check_text(what: str, text: str) -> None:
    """Refuse what could break a line of a file or a log; Java takes it."""
    if len(text) > NAME_LENGTH_MAX or any(ord(letter) < 0x20 for letter in text):
        raise AccountRefused(f"{what} is longer than {NAME_LENGTH_MAX} characters, or has a control character in it")


def list_users(accounts: Iterable[Account], text: str | None) -> list[UserInfo]:
    """The users whose name contains `text`, by name."""
    wanted = [account for account in accounts if not text or text in account.username]
    return [shown_user(account) for account in sorted(wanted, key=lambda account: account.username)]
