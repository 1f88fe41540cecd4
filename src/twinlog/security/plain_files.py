"""conf/plain_acl.yml and conf/acl/*.yml below ROCKETMQ_HOME: read at the start, and again when they change.

The reader knows the part of YAML that these files use: keys and values, lists after dashes, quotes, comments. What it
does not know stops the start. A file that is broken later leaves the accounts as they were, with an error in the log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from twinlog.security.errors import AccountsBroken
from twinlog.security.plain_acl import PlainAccount, PlainRules, read_rules
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
MAIN = Path("conf", "plain_acl.yml")
MORE = Path("conf", "acl")
LOOK_S = 0.5  # Java looks every half second, too
_LINE = re.compile(r"(?P<blanks> *)(?P<dash>- +|-$)?(?:(?P<key>[A-Za-z]\w*) *:(?: +|$))?(?P<value>.*)")
_QUOTED = re.compile(r"""(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?""")


def parse_yaml(text: str) -> dict[str, object]:
    """The content of a file; ValueError with the line that cannot be read."""
    top: dict[str, object] = {}
    section: list[object] | None = None  # a list at the top
    account: dict[str, object] | None = None
    inner: list[object] | None = None  # a list within an account
    item_blanks = -1  # of the dashes of the section
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        found = _LINE.fullmatch(line.rstrip())
        if found is None or "\t" in line[: len(line) - len(line.lstrip())]:
            raise ValueError(f"line {number} cannot be read; write keys, values and lists only")
        blanks, dash, key, value = len(found["blanks"]), found["dash"], found["key"], _scalar(found["value"], number)
        if dash is None and blanks == 0:
            if key is None or key in top:
                raise ValueError(f"line {number} is not a new key at the top of the file")
            section, account, inner, item_blanks = [], None, None, -1
            top[key] = section if value == "" else value
        elif dash is not None and section is not None and item_blanks in (-1, blanks):
            item_blanks, inner = blanks, None
            if key is None:
                account = None
                section.append(value)
            else:
                inner = []
                account = {key: inner if value == "" else value}
                section.append(account)
        elif dash is not None and inner is not None and key is None and blanks > item_blanks:
            inner.append(value)
        elif dash is None and account is not None and key is not None and blanks > item_blanks and key not in account:
            inner = []
            account[key] = inner if value == "" else value
        else:
            raise ValueError(f"line {number} does not belong to what stands above it")
    return top


def _scalar(text: str, number: int) -> str:
    text = text.strip()
    if text[:1] in ("'", '"'):
        found = _QUOTED.fullmatch(text)
        if found is None:
            raise ValueError(f"line {number} has a quote that does not end")
        return found[1] if found[1] is not None else found[2]
    text = re.split(r"(?:^|\s)#", text)[0].strip()
    if text[:1] in ("&", "!", "|", ">", "%", "@", "`", "[", "{") or text[:2] in ("? ", "<<"):
        raise ValueError(f"line {number} uses YAML that is not known here; write plain values and lists with dashes")
    return text


class PlainFiles:
    """The rules of all files, and an edition that grows when they change."""

    def __init__(self, home: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._home, self._now_s = home, now_s
        self._seen = self._stamps()
        self._current = self._load()
        self._edition = 0
        self._looked_s = now_s()

    def rules(self) -> PlainRules:
        return self._current

    def edition(self) -> int:
        """Looks at the files, at most every half second."""
        now = self._now_s()
        if now - self._looked_s >= LOOK_S:
            self._looked_s = now
            if (stamps := self._stamps()) != self._seen:
                self._seen = stamps
                self._load_again()
        return self._edition

    def _load_again(self) -> None:
        try:
            self._current = self._load()
        except (AccountsBroken, OSError) as error:
            log.error("accounts stay as they were: a file cannot be read", error=str(error))
            return
        self._edition += 1
        log.info("accounts were read again", accounts=len(self._current.accounts))

    def _paths(self) -> list[Path]:
        more = self._home / MORE
        found = sorted(path for path in more.rglob("*") if path.suffix in (".yml", ".yaml")) if more.is_dir() else []
        main = self._home / MAIN
        return [*found, *([main] if main.exists() else [])]

    def _stamps(self) -> dict[Path, tuple[int, int, int]]:
        stamps: dict[Path, tuple[int, int, int]] = {}
        for path in self._paths():
            try:
                found = path.stat()
            except OSError:
                continue
            stamps[path] = found.st_mtime_ns, found.st_size, found.st_ino
        return stamps

    def _load(self) -> PlainRules:
        accounts: dict[str, PlainAccount] = {}
        addresses: list[str] = []
        for path in self._paths():
            try:
                rules = read_rules(parse_yaml(path.read_text(encoding="utf-8")), str(path))
            except (ValueError, OSError) as error:
                raise AccountsBroken(f"{path} cannot be read: {error}") from None
            for name, account in rules.accounts.items():
                if name in accounts:
                    log.warning("an accessKey is in two files; the first one counts", accessKey=name, file=str(path))
                accounts.setdefault(name, account)
            addresses += rules.white_addresses
        return PlainRules(accounts, tuple(addresses))
