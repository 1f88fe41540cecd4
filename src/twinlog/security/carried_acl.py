"""The accounts of a RocketMQ 4.9 master, as its replica keeps them: a file that is read like plain_acl.yml.

A 4.9 master answers request 54 with all accounts, their secrets, and the global white addresses:

    {"globalWhiteAddrs": ["10.0.0.*"], "plainAccessConfigs": [{"accessKey": "name", "secretKey": "secret", ...}]}
"""

from __future__ import annotations

import msgspec

from twinlog.security.errors import AccountsBroken
from twinlog.security.plain_acl import read_rules
from twinlog.security.plain_files import parse_yaml

FILE_NAME = "from-master.yml"  # below conf/acl, which Java reads too
_HEAD = "# Accounts of the master. They are written here again whenever they change there: change them on the master.\n"


class _Account(msgspec.Struct, rename="camel"):
    access_key: str = ""
    secret_key: str = ""
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class _Answer(msgspec.Struct, rename="camel"):
    global_white_addrs: list[str] | None = None
    plain_access_configs: list[_Account] | None = None


def carried_text(body: bytes) -> str:
    """The file for a master's answer; AccountsBroken when it would not mean the same, and no secret is in the error."""
    try:
        found = msgspec.json.decode(body, type=_Answer)
    except (ValueError, RecursionError):
        raise AccountsBroken("the master's answer is not a list of accounts") from None
    lines = [_HEAD]
    if found.global_white_addrs:
        lines.append("globalWhiteRemoteAddresses:\n")
        lines += [f"- {_quoted(address, 'a global white address')}\n" for address in found.global_white_addrs]
    if found.plain_access_configs:
        lines.append("accounts:\n")
    for account in found.plain_access_configs or ():
        lines += _lines(account)
    text = "".join(lines)
    try:
        rules = read_rules(parse_yaml(text), "the master's accounts")
    except ValueError as error:
        raise AccountsBroken(f"the master's accounts cannot be written to a file: {error}") from None
    for account in found.plain_access_configs or ():
        if rules.accounts[account.access_key].secret != account.secret_key:
            raise AccountsBroken(f"the secret of {account.access_key!r} cannot be written to a file")
    return text


def _lines(account: _Account) -> list[str]:
    name = account.access_key
    values = {
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
    }
    lines = [f"- accessKey: {_quoted(name, 'an accessKey')}\n", f"  admin: {'true' if account.admin else 'false'}\n"]
    lines += [f"  {key}: {_quoted(value, f'{key} of {name!r}')}\n" for key, value in values.items() if value]
    for key, perms in (("topicPerms", account.topic_perms), ("groupPerms", account.group_perms)):
        if perms:
            lines.append(f"  {key}:\n")
            lines += [f"  - {_quoted(perm, f'{key} of {name!r}')}\n" for perm in perms]
    return lines


def _quoted(text: str, what: str) -> str:
    """The text between quotes; YAML has no escapes between single ones."""
    if not text.isprintable():
        raise AccountsBroken(f"{what} of the master has a character that cannot be in a file")
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    raise AccountsBroken(f"{what} of the master has both kinds of quotes, or a quote and a backslash")
