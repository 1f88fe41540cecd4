"""A table of the history on a lake: files that are added whole, and joined without an exchange of directories.

    <history>/_owner.json               the replicas whose rows it has
    <history>/changes/<file>.parquet    as in a directory
    <history>/changes/_join.json        the join that is being made: it decides

A join stages its file and then writes `_join.json`, which names that file and those it replaces. From then on our
readers see the new file and not the old ones; moving and removing them may be repeated, and the next run finishes it.
Others may see both sides meanwhile.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from twinlog.base.atomic_file import replace_file
from twinlog.base.clock import wall_clock_ms
from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.sync.tables import table_join
from twinlog.spark.lake.lake import Lake
from twinlog.spark.lake.spark_tables import parquet_bytes

if TYPE_CHECKING:
    from twinlog.spark.lake.address import Address

_OWNER, _JOIN = "_owner.json", "_join.json"
_ID_FILE = "_history.json"  # in the directory of the replicas


class Rules(Protocol):
    """How a table is kept small."""

    @property
    def keep_ms(self) -> int | None: ...
    def tidied(self, table: pa.Table, cutoff_ms: int) -> pa.Table: ...


class AnothersHistory(SparkSourceError):
    """The rows of a history come from one directory of replicas."""

    def __init__(self, place: Address, owner: Mapping[str, str]) -> None:
        hint = f"give another --history; if those replicas are gone for good, remove {place / _OWNER}"
        super().__init__(f"{place} has the history of the replicas in {owner.get('to')} on {owner.get('host')}: {hint}")


def own_history(lake: Lake, to: Path) -> None:
    """Make the history that of the replicas in `to`, which this process has locked; AnothersHistory if it is not."""
    path = to / _ID_FILE
    if not path.exists():
        replace_file(path, [json.dumps({"id": uuid.uuid4().hex}).encode()], None)
    mine = {"id": json.loads(path.read_bytes())["id"], "to": str(to), "host": socket.gethostname()}
    if not lake.put_if_absent(_OWNER, json.dumps(mine).encode()):
        owner = json.loads(lake.read(_OWNER) or b"{}")
        if owner.get("id") != mine["id"]:
            raise AnothersHistory(lake.root, owner)


class LakeTable:
    """As `AppendedTable`, in a folder of a lake, for the one job that writes it."""

    def __init__(self, lake: Lake, folder: str, schema: pa.Schema, rules: Rules) -> None:
        self._lake = lake
        self._folder = folder
        self._schema = schema
        self._rules = rules
        self._finish_join()
        lake.delete(entry.name for entry in lake.list(f"{folder}/_staging/"))  # of a killed run
        self.tidy(wall_clock_ms())

    def newest(self) -> Mapping[tuple[str, str], int]:
        """The highest number by broker and replica."""
        found: dict[tuple[str, str], int] = {}
        for table in self._tables([one.name for one in self._files()], ["broker", "replica", "sequence"]):
            rows = table.group_by(["broker", "replica"]).aggregate([("sequence", "max")]).to_pylist()
            for row in rows:
                key = (row["broker"], row["replica"])
                found[key] = max(found.get(key, 0), row["sequence_max"])
        return found

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add one file with these rows."""
        if rows:
            name = f"{self._folder}/{wall_clock_ms()}-{uuid.uuid4().hex}.parquet"
            self._lake.write(name, parquet_bytes(pa.Table.from_pylist(rows, self._schema)))

    def tidy(self, now_ms: int) -> None:
        """Join small files and drop old rows, if there are enough of them."""
        plan = table_join.plan_join(self._files(), keep_ms=self._rules.keep_ms, now_ms=now_ms)
        if plan is None:
            return
        old = [one.name for one in plan.files]
        whole = self._rules.tidied(pa.concat_tables(self._tables(old, self._schema.names)), plan.cutoff_ms)
        name = plan.new_name(uuid.uuid4().hex)
        self._lake.write(f"{self._folder}/_staging/{name}", parquet_bytes(whole))
        self._lake.write(f"{self._folder}/{_JOIN}", json.dumps({"new": name, "removes": old}).encode())
        self._finish_join()

    def _finish_join(self) -> None:
        join = _load_join(self._lake, self._folder)
        if join is None:
            return
        self._lake.move(f"{self._folder}/_staging/{join['new']}", f"{self._folder}/{join['new']}")
        self._lake.delete(f"{self._folder}/{name}" for name in join["removes"])
        self._lake.delete([f"{self._folder}/{_JOIN}"])

    def _tables(self, names: Sequence[str], columns: list[str]) -> Iterator[pa.Table]:
        for name in names:
            data = self._lake.read(f"{self._folder}/{name}")
            if data is not None:
                yield pq.read_table(pa.BufferReader(data), columns=columns)

    def _files(self) -> list[table_join.TableFile]:
        return list(_listed(self._lake, self._folder))


def history_names(lake: Lake, folder: str) -> list[str]:
    """The files of a table that count now, by where they are."""
    join = _load_join(lake, folder)
    staged = {entry.name for entry in lake.list(f"{folder}/_staging/")} if join else set()
    found = {one.name: f"{folder}/{one.name}" for one in _listed(lake, folder)}
    if join is not None:
        aside = f"{folder}/_staging/{join['new']}"
        if join["new"] not in found and aside in staged:
            found[join["new"]] = aside
        if join["new"] in found:
            found = {name: path for name, path in found.items() if name not in join["removes"]}
    return sorted(found.values())


def _listed(lake: Lake, folder: str) -> Iterator[table_join.TableFile]:
    for entry in lake.list(f"{folder}/"):
        name = entry.name[len(folder) + 1 :]
        if "/" not in name and name[0] not in "._" and name.endswith(".parquet"):
            yield table_join.TableFile(name, entry.size)


def _load_join(lake: Lake, folder: str) -> dict[str, Any] | None:
    data = lake.read(f"{folder}/{_JOIN}")
    return None if data is None else json.loads(data)
