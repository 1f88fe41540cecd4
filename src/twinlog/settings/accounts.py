"""The account that requests are signed with: a name and a secret, from a setting or from a tools file.

innerClientAuthenticationCredentials={"accessKey":"name","secretKey":"secret"}       broker.conf of 5.x
accessKey: name                                                                      conf/tools.yml, for mqadmin
secretKey: secret
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from twinlog.settings.errors import SettingsError

TOOLS_FILE = Path("conf", "tools.yml")  # below ROCKETMQ_HOME
_LINE = re.compile(r"""^(accessKey|secretKey)\s*:\s*(?:"([^"]*)"|'([^']*)'|([^\s#'"]*))\s*(?:\#.*)?$""")


class _Given(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str


class Account(NamedTuple):
    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Account({self.access_key!r})"


def parse_account(text: str) -> Account:
    """The account in a JSON object; ValueError names what is wrong, and never the secret."""
    try:
        found = msgspec.json.decode(text.encode(), type=_Given)
    except (ValueError, RecursionError):
        raise ValueError('is not {"accessKey":"name","secretKey":"secret"}') from None
    if not found.access_key or not found.secret_key:
        raise ValueError('needs a name and a secret: {"accessKey":"name","secretKey":"secret"}')
    return Account(found.access_key, found.secret_key)


def account_problem(text: str) -> str | None:
    """What is wrong with an account in a setting; None when it can be used."""
    try:
        parse_account(text)
    except ValueError as error:
        return str(error)
    return None


def read_tools_file(path: Path) -> Account | None:
    """The account in a tools file, which has a key and a value on each line; None when it has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8: {error}") from error
    found = {
        match[1]: next(filter(None, match.groups()[1:]), "") for match in map(_LINE.match, text.splitlines()) if match
    }
    given = [found.get(name, "") for name in ("accessKey", "secretKey")]
    if not any(given):
        return None
    if not all(given):
        raise SettingsError(f"{path} has an accessKey or a secretKey alone; write both, or none")
    return Account(*given)
