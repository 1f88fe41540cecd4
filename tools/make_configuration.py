"""Make docs/configuration.md from the settings classes: `python -m tools.make_configuration`.

Key, default and whether a request may change it come from `conf(...)`. The comment above a field is its meaning, and a
comment such as `# -- Network` begins a section. A test fails when the document is not what this makes.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from twinlog.settings.access import AccessSettings
from twinlog.settings.broker import BrokerSettings
from twinlog.settings.conf import Key
from twinlog.settings.failover import FailoverSettings
from twinlog.settings.known_keys import REFUSED_VALUES, is_java_key
from twinlog.settings.nameserver import NameServerSettings
from twinlog.settings.net import NetSettings, TlsSettings
from twinlog.settings.replication import ReplicationSettings
from twinlog.settings.store import StoreSettings

PATH = Path(__file__).parents[1] / "docs" / "configuration.md"
FILES = {
    "broker.conf": {
        "Broker": BrokerSettings,
        "Store": StoreSettings,
        "Replication": ReplicationSettings,
        "Failover": FailoverSettings,
    },
    "namesrv.conf": {"Name server": NameServerSettings},
    "Both files": {"Connections": NetSettings, "TLS": TlsSettings, "Access control": AccessSettings},
}
_HEAD = """\
# Configuration

<!-- Made by `python -m tools.make_configuration` from the classes in src/twinlog/settings. Do not edit it here. -->

`twinlog broker -c broker.conf` and `twinlog namesrv -c namesrv.conf` read Java properties files: a key, `=` and a value
on each line. RocketMQ's own files work. `--print` prints every key with the value in use.

- A value that cannot be read stops the start, with file and line. So do the values that are listed at the end.
- A key that nothing reads causes a warning: it is a RocketMQ key that Twinlog does not support, or a typing error.
- *run time*: `yes` when `updateBrokerConfig` or `updateNamesrvConfig` can change it on a running server. The change is
  also written into the file that the server was started with. Other keys need a restart.
- *from*: `Java` for RocketMQ's keys, `own` for Twinlog's.
- Sizes are in bytes and times in milliseconds unless the meaning names another unit; the value itself has no unit.
"""
_SECTION = re.compile(r"    # -- (.+)")
_COMMENT = re.compile(r"    # (.+)")
_FIELD = re.compile(r"    (\w+): .*= conf\(")
_TITLES = ("key", "default", "run time", "from", "meaning")
_WIDTH_MAX = 118
_DEFAULT_WIDTH_MAX = 19


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One key of the document."""

    section: str
    key: Key
    default: str
    meaning: str


def document() -> str:
    """The whole text."""
    parts = [_HEAD]
    for file, classes in FILES.items():
        for title, cls in classes.items():
            parts.append(f"## {file}: {title}\n\n{inspect.getdoc(cls)}\n")
            sections: dict[str, list[Row]] = {}
            for row in rows(cls):
                sections.setdefault(row.section, []).append(row)
            for section, found in sections.items():
                heading = f"### {section}\n\n" if section else ""
                parts.append(f"{heading}```text\n{table(found)}\n```\n")
    refused = "\n".join(f"{key}={value}" for key, value in REFUSED_VALUES)
    parts.append(f"## Values that stop the start\n\n{_REFUSED}\n\n```text\n{refused}\n```\n")
    return "\n".join(parts)


_REFUSED = """\
Ignoring these would open a protected broker, or write a store that other brokers of the cluster cannot read. The error
names the reason."""


def rows(cls: type) -> Iterator[Row]:
    """The keys of a settings class, in its order."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    kinds = typing.get_type_hints(cls)
    for name, section, comment in comments(cls):
        field = fields[name]
        key: Key = field.metadata["key"]
        default = default_text(field)
        more = []
        if len(default) > _DEFAULT_WIDTH_MAX:
            default, more = "see meaning", [f"Default: {default}."]
        if typing.get_origin(kinds[name]) is Literal:
            more.append(f"One of {', '.join(typing.get_args(kinds[name]))}.")
        if key.old_names:
            more.append(f"Older name: {', '.join(key.old_names)}.")
        yield Row(section, key, default, " ".join([comment, *more]))


def comments(cls: type) -> Iterator[tuple[str, str, str]]:
    """(field, section, comment above it) of each field, from the source of the class."""
    section, found = "", []
    for line in inspect.getsource(cls).splitlines():
        if match := _SECTION.fullmatch(line):
            section, found = match[1], []
        elif match := _COMMENT.fullmatch(line):
            found.append(match[1])
        else:
            if match := _FIELD.match(line):
                yield match[1], section, " ".join(found)
            found = []


def default_text(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "see meaning"
    value = field.default
    if value is None or value == "":
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and "bytes" in field.name and value and value % 1024 == 0:
        return f"{value} ({size_text(value)})"
    return str(value)


def size_text(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count % size == 0:
            return f"{count // size} {unit}"
    return f"{count // 1024} KiB"


def table(found: Iterable[Row]) -> str:
    """Columns of plain text; a long meaning has several lines."""
    cells = [
        (
            row.key.name,
            row.default,
            "yes" if row.key.updatable else "no",
            "Java" if is_java_key(row.key.name) else "own",
            row.meaning,
        )
        for row in found
    ]
    widths = [max(len(row[column]) for row in (_TITLES, *cells)) for column in range(4)]
    lines = [_line(widths, _TITLES)]
    lines.append("  ".join("-" * width for width in (*widths, _WIDTH_MAX - sum(widths) - 8)))
    for *facts, meaning in cells:
        first, *others = textwrap.wrap(meaning, _WIDTH_MAX - sum(widths) - 8)
        lines.append(_line(widths, (*facts, first)))
        lines += [_line(widths, ("", "", "", "", other)) for other in others]
    return "\n".join(lines)


def _line(widths: list[int], cells: Iterable[str]) -> str:
    *facts, meaning = cells
    return "  ".join([*(cell.ljust(width) for cell, width in zip(facts, widths, strict=True)), meaning])


if __name__ == "__main__":
    PATH.write_text(document())
    print(f"{PATH} written")
