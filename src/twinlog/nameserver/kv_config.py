"""The name server's only lasting state: namespaces of keys and values, kept in one JSON file.

    {"configTable": {"ORDER_TOPIC_CONFIG": {"TopicTest": "broker-a:4;broker-b:4"}}}

Every change is on disk before it is answered: a temporary file is written and synced, the former content is linked as
`.bak`, and the temporary file takes its name. A broken file is set aside as `.broken`, and the `.bak` is used.
"""

from __future__ import annotations

import os
import pathlib

import msgspec

from twinlog.nameserver.errors import NameServerError
from twinlog.settings.safe_files import UnsafeFile, read_file, refuse_links, replace_file
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import Body
from twinlog.wire.budget import FILE
from twinlog.wire.errors import BodyError
from twinlog.wire.fastjson import dumps, loads

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
log = get_logger(__name__)


class _Content(Body):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KvConfig:
    """Values by namespace and key; `path` None keeps them in memory only."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = pathlib.Path(path) if path is not None else None
        self._table: dict[str, dict[str, str]] = load_table(self._path) if self._path is not None else {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace, None if it never had one."""
        found = self._table.get(namespace)
        return dict(found) if found is not None else None

    def put(self, namespace: str, key: str, value: str) -> None:
        changed = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
        self._save(changed)
        self._table = changed

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; its namespace stays, possibly empty."""
        if key in self._table.get(namespace, {}):
            rest = {name: value for name, value in self._table[namespace].items() if name != key}
            changed = {**self._table, namespace: rest}
            self._save(changed)
            self._table = changed

    def _save(self, table: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            replace_file(self._path, [dumps({"configTable": table})], backup=True)


def load_table(path: pathlib.Path) -> dict[str, dict[str, str]]:
    """What the file holds; its backup if the file is broken; nothing if there is neither."""
    try:
        refuse_links(path)
    except UnsafeFile as error:
        raise NameServerError(str(error)) from error
    try:
        return _read(path) or {}
    except NameServerError as broken:
        table = _read(path.with_name(path.name + ".bak"))
        if table is None:
            # Going on without would silently drop what the next save then overwrites.
            raise NameServerError(f"{broken}; repair the file, or move it away to start with no KV configs") from broken
        aside = path.with_name(path.name + ".broken")
        os.replace(path, aside)
        log.error("a broken KV config file was set aside, its backup is used", error=str(broken), aside=str(aside))
        replace_file(path, [dumps({"configTable": table})], backup=True)
        return table


def _read(path: pathlib.Path) -> dict[str, dict[str, str]] | None:
    try:
        data = read_file(path)
        return msgspec.convert(loads(data, FILE), _Content, strict=False).config_table
    except FileNotFoundError:
        return None
    except (BodyError, msgspec.ValidationError, OSError) as error:
        raise NameServerError(f"{path}: {error}") from error
