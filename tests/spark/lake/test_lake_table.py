"""A history table on a lake: every row once, wherever a join is killed; and one owner."""

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.lake.archives import DyingLake, Killed

from twinlog.spark.jobs.sync.tables import table_join
from twinlog.spark.jobs.sync.tables.history import TableRules
from twinlog.spark.jobs.sync.tables.lake_table import AnothersHistory, LakeTable, history_names, own_history
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.local_lake import LocalLake

SCHEMA = pa.schema([("broker", pa.string()), ("replica", pa.string()), ("sequence", pa.int64()), ("at", pa.int64())])
RULES = TableRules(time="at")


def rows(*numbers):
    return [{"broker": "b", "replica": "r", "sequence": number, "at": 0} for number in numbers]


def seen(lake) -> list[int]:
    """What our readers see."""
    found = []
    for name in history_names(lake, "t"):
        found += pq.read_table(pa.BufferReader(lake.read(name) or b""))["sequence"].to_pylist()
    return sorted(found)


@pytest.fixture
def new_lake(tmp_path, monkeypatch):
    monkeypatch.setattr(table_join.plan_join, "__kwdefaults__", {"files_max": 3})
    counter = itertools.count()
    return lambda: LocalLake(parse_address(tmp_path / f"lake{next(counter)}", "test"))


def test_small_files_are_joined_and_rows_keep_their_numbers(new_lake):
    lake = new_lake()
    table = LakeTable(lake, "t", SCHEMA, RULES)
    for number in range(1, 5):
        table.append(rows(number))
    assert len(history_names(lake, "t")) == 4
    table.tidy(0)
    assert len(history_names(lake, "t")) == 1
    assert (seen(lake), dict(table.newest())) == ([1, 2, 3, 4], {("b", "r"): 4})
    assert [entry.name for entry in lake.list("t/_")] == []


def test_a_join_that_is_killed_anywhere_shows_every_row_once_and_is_finished(new_lake):
    for steps in range(8):
        lake = new_lake()
        table = LakeTable(lake, "t", SCHEMA, RULES)
        for number in range(1, 5):
            table.append(rows(number))
        try:
            LakeTable(DyingLake(lake, steps), "t", SCHEMA, RULES)
        except Killed:
            assert seen(lake) == [1, 2, 3, 4], f"killed after {steps} changes"
        again = LakeTable(lake, "t", SCHEMA, RULES)
        assert (seen(lake), dict(again.newest())) == ([1, 2, 3, 4], {("b", "r"): 4})
        assert [entry.name for entry in lake.list("t/_")] == []
    assert steps == 7


def test_a_history_belongs_to_one_directory_of_replicas(new_lake, tmp_path):
    lake, to, other = new_lake(), tmp_path / "to", tmp_path / "other"
    to.mkdir()
    other.mkdir()
    own_history(lake, to)
    own_history(lake, to)
    with pytest.raises(AnothersHistory, match=r"history of the replicas in .*/to on .*give another --history"):
        own_history(lake, other)
    assert json.loads(lake.read("_owner.json") or b"")["to"] == str(to)
