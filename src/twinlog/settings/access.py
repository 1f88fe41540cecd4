"""Access control: who may use a server, under RocketMQ 5's key names, and the log of what administrators did."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from twinlog.settings.conf import conf
from twinlog.settings.errors import SettingsError

_CODES = re.compile(r"\s*(?:\d{1,6}\s*(?:,\s*\d{1,6}\s*)*)?")


class _Given(msgspec.Struct):
    username: str
    password: str


def first_user(text: str) -> tuple[str, str]:
    """The name and the secret in initAuthenticationUser; ValueError never shows the secret."""
    try:
        given = msgspec.json.decode(text.encode(), type=_Given)
    except (ValueError, RecursionError):
        raise ValueError('is not {"username":"name","password":"secret"}') from None
    if not given.username.strip() or not given.password.strip():
        raise ValueError('needs a name and a secret: {"username":"name","password":"secret"}')
    return given.username, given.password


def _first_user_problem(text: str) -> str | None:
    if not text:
        return None
    try:
        first_user(text)
    except ValueError as error:
        return str(error)
    return None


def _codes_problem(text: str) -> str | None:
    return None if _CODES.fullmatch(text) else "is not a list of request codes; write numbers with commas between them"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Accounts of one server."""

    # -- Accounts and permissions

    # Every request must be signed by an account. See accounts.md for this and the keys below.
    authentication: bool = conf("authenticationEnabled", False)
    # The account must have a policy for what it asks. Needs authenticationEnabled.
    authorization: bool = conf("authorizationEnabled", False)
    # First administrator, made at the start if there is no account of that name:
    # {"username":"name","password":"secret"}. It is not shown by requests.
    init_user: str | None = conf("initAuthenticationUser", None, check=_first_user_problem)
    # Directory of accounts.json, with users, secrets and policies. Default: beside the metadata (broker) or
    # kvConfigPath (name server).
    accounts_dir: str | None = conf("authConfigPath", None)
    # File with the key that encrypts the secrets in accounts.json; made if it is missing. The variable
    # TWINLOG_ACCOUNTS_KEY is used instead, if it is set. Default: accounts.key beside accounts.json.
    accounts_key_file: str | None = conf("accountsKeyFile", None)
    # Request codes, with commas between them, that need no signature.
    authentication_white_list: str = conf("authenticationWhitelist", "", check=_codes_problem)
    # Request codes that need no permission.
    authorization_white_list: str = conf("authorizationWhitelist", "", check=_codes_problem)

    # Accounts of RocketMQ 4.9: conf/plain_acl.yml and conf/acl/*.yml below rocketmqHome. A file that changes is read
    # again. Not together with authenticationEnabled.
    plain_acl: bool = conf("aclEnable", False)
    # Where RocketMQ is installed. Default: the variable ROCKETMQ_HOME.
    home: str | None = conf("rocketmqHome", None)

    # -- Audit log

    # Write a JSON line for every administration request: who, from where, what, result.
    audit_log: bool = conf("auditLogEnable", True)
    # File of these lines. Default: audit.log beside accounts.json.
    audit_file: str | None = conf("auditLogFile", None)
    # Bytes after which it becomes audit.log.1, and a new one begins.
    audit_bytes_max: int = conf("auditLogMaxBytes", 10 << 20, minimum=4096)
    # Most files, the newest included; the oldest is removed.
    audit_files_max: int = conf("auditLogMaxFiles", 5, minimum=2, maximum=1000)

    @property
    def codes_without_signature(self) -> frozenset[int]:
        return _codes(self.authentication_white_list)

    @property
    def codes_without_permission(self) -> frozenset[int]:
        return _codes(self.authorization_white_list)


def check_access(access: AccessSettings, source: str) -> None:
    """Refuse what would look protected and would not be."""
    if access.authorization and not access.authentication:
        problem = (
            "authorizationEnabled=true without authenticationEnabled=true would believe any name that a peer gives"
        )
        raise SettingsError(f"{source}: {problem}; set authenticationEnabled=true too")
    if access.authentication and access.plain_acl:
        raise SettingsError(
            f"{source}: aclEnable=true and authenticationEnabled=true are two kinds of accounts; use one"
        )


def plain_acl_home(access: AccessSettings, source: str) -> Path:
    """The directory of RocketMQ that has plain_acl.yml in it; SettingsError when there is none."""
    home = access.home or os.environ.get("ROCKETMQ_HOME")
    if not home:
        raise SettingsError(f"{source}: aclEnable=true needs rocketmqHome, or the variable ROCKETMQ_HOME")
    if not Path(home, "conf", "plain_acl.yml").exists() and not Path(home, "conf", "acl").is_dir():
        raise SettingsError(f"{source}: aclEnable=true, and {home}/conf has neither plain_acl.yml nor acl")
    return Path(home)


def _codes(text: str) -> frozenset[int]:
    return frozenset(int(code) for code in text.split(",") if code.strip())
