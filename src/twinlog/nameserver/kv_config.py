"""KV configs, the only state that a name server keeps on disk: namespaces of keys and values, in one JSON file.

    {"configTable": {"ORDER_TOPIC_CONFIG": {"TopicTest": "broker-a:4;broker-b:4"}}}

Every change is on disk before it is answered, and the former content is kept as `.bak`. A broken file is renamed to
`.broken`, and the `.bak` is used.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from twinlog.base.atomic_file import keep_backup, refuse_links, replace_file, sibling
from twinlog.base.clock import wall_clock_ns
from twinlog.base.json_checksum import is_changed, with_checksum
from twinlog.base.safe_files import UnsafeFile, read_file
from twinlog.nameserver.errors import NameServerError, TableFull
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import Body
from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import FILE
from twinlog.wire.java_json.fastjson import dumps, loads

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
ENTRY_LENGTH = 16  # counted for each entry, beside its characters
Table = dict[str, dict[str, str]]
log = get_logger(__name__)


class _Content(Body):
    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict[str, dict[str, str]])


@dataclass(slots=True)
class _Change:
    """A value to set or, when it is None, to remove; and the result."""

    namespace: str
    key: str
    value: str | None
    length_max: int | None = None  # of the whole table afterwards
    is_done: bool = False
    problem: Exception | None = None


class KvConfig:
    """Values by namespace and key; `path` None keeps them in memory only.

    A change is written in a thread, and readers see it when it is on disk. Changes that come during a write share the
    next one.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = pathlib.Path(path) if path is not None else None
        self._table: Table = load_table(self._path) if self._path is not None else {}
        self._length = table_length(self._table)
        self._waiting: list[_Change] = []
        self._writing = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kv-config")

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace, None if it never had one."""
        found = self._table.get(namespace)
        return dict(found) if found is not None else None

    async def put(self, namespace: str, key: str, value: str, *, length_max: int | None = None) -> None:
        """Set a value. OSError when it cannot be written, TableFull when the table would be too long."""
        await self._change(_Change(namespace, key, value, length_max))

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key; its namespace stays, possibly empty."""
        await self._change(_Change(namespace, key, None))

    async def _change(self, change: _Change) -> None:
        self._waiting.append(change)
        async with self._writing:
            if not change.is_done:  # the task that held the lock before may have written it too
                changes, self._waiting = self._waiting, []
                await self._write(changes)
        if change.problem is not None:
            raise change.problem

    async def _write(self, changes: list[_Change]) -> None:
        """Make all changes or, when the file cannot be written, none."""
        table, length = apply_changes(self._table, self._length, changes)
        try:
            if self._path is not None and table is not self._table:
                await asyncio.get_running_loop().run_in_executor(self._thread, save_table, self._path, table)
        except BaseException as error:
            shown = error if isinstance(error, Exception) else OSError("the name server is stopping")
            for change in changes:
                change.problem = change.problem or shown
            if shown is not error:
                raise
            return
        self._table, self._length = table, length


def apply_changes(table: Table, length: int, changes: Iterable[_Change]) -> tuple[Table, int]:
    """The table after these changes, and its length; the same table when nothing changes.

    The former table stays as it is. A change that would make the table too long is left out and has a `problem`.
    """
    changed: Table = {}
    for change in changes:
        change.is_done = True
        namespace = change.namespace
        rows = changed.get(namespace, table.get(namespace))
        before = rows.get(change.key) if rows is not None else None
        if before == change.value:
            continue
        grown = length - _entry_length(change.key, before) + _entry_length(change.key, change.value)
        if rows is None:
            grown += _entry_length(namespace, "")
        if change.length_max is not None and grown > max(change.length_max, length):
            change.problem = TableFull(grown)
            continue
        length = grown
        if namespace not in changed:
            changed[namespace] = dict(rows or {})
        if change.value is None:
            del changed[namespace][change.key]
        else:
            changed[namespace][change.key] = change.value
    return ({**table, **changed} if changed else table), length


def table_length(table: Table) -> int:
    """The length of a table in characters, with ENTRY_LENGTH more for each entry."""
    return sum(
        _entry_length(namespace, "") + sum(_entry_length(key, value) for key, value in rows.items())
        for namespace, rows in table.items()
    )


def _entry_length(name: str, value: str | None) -> int:
    return 0 if value is None else len(name) + len(value) + ENTRY_LENGTH


def load_table(path: pathlib.Path) -> Table:
    """The table in the file; that in its backup if the file is broken; empty if there is no file."""
    try:
        refuse_links(path)
    except UnsafeFile as error:
        raise NameServerError(str(error)) from error
    try:
        return _read(path) or {}
    except NameServerError as broken:
        table = _read(sibling(path, "bak"))
        if table is None:
            # With an empty table, the next save would overwrite what the file holds.
            raise NameServerError(f"{broken}; repair the file, or move it away to start with no KV configs") from broken
        aside = sibling(path, "broken")
        os.replace(path, aside)
        log.error("a broken KV config file was renamed, its backup is used", error=str(broken), aside=str(aside))
        save_table(path, table)
        return table


def save_table(path: pathlib.Path, table: Table) -> None:
    now_ns = wall_clock_ns()
    replace_file(path, with_checksum([dumps({"configTable": table})], now_ns), keep_old=keep_backup, modified_ns=now_ns)


def _read(path: pathlib.Path) -> Table | None:
    try:
        data = read_file(path)
        changed = is_changed(data, os.stat(path).st_mtime_ns)
        table = msgspec.convert(loads(data, FILE), _Content, strict=False).config_table
        if changed:
            log.warning("a KV config file was changed by hand since its last save: it is used as it is", path=str(path))
        return table
    except FileNotFoundError:
        return None
    except (BodyError, ValueError, OSError) as error:
        raise NameServerError(f"{path}: {error}") from error
