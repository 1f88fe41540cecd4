"""Tables on a disk that loses power: what was committed is there once, and the next run goes on."""

import contextlib

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

from tests.faults.machine import PowerCut
from tests.spark.jobs.archive.tables.filling import Archive, local_lake

from twinlog.spark.jobs.archive.compaction_plan import CompactJob
from twinlog.spark.jobs.archive.parse.parser import parse_plan
from twinlog.spark.jobs.archive.tables.compact_tables import _compact_delta
from twinlog.spark.lake.local_lake import LocalLake

FORMATS = ("iceberg", "delta")


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def disk(tmp_path):
    with PowerCut.disk(tmp_path / "machine", 64) as disk:
        yield disk


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_table_has_committed_survives_a_power_cut(disk, format):
    table = Archive(format, local_lake(disk.at / "table"))
    table.fill(25)
    disk.cut()
    disk.back()
    assert table.numbers() == list(range(25))
    table.fill(40)
    assert table.numbers() == list(range(40))


@pytest.mark.parametrize("format", FORMATS)
def test_both_tables_of_parsed_rows_survive_a_power_cut(disk, format):
    plan = parse_plan("json=id bigint, name string")
    table = Archive(format, local_lake(disk.at / "table"), local_lake(disk.at / "table_unparsed"), plan)
    table.fill(25)
    disk.cut()
    disk.back()
    table.fill(40)
    assert sorted(table.numbers() + [row["queueOffset"] for row in table.second_rows()]) == list(range(40))


def test_what_delta_compacted_survives_a_power_cut(disk):
    table = Archive("delta", local_lake(disk.at / "table"))
    table.fill(25)
    assert _compact_delta(table.tables()[0], CompactJob(target=disk.at / "table", before="2099-01-01")).files_after
    disk.cut()
    disk.back()
    assert table.numbers() == list(range(25))


@pytest.mark.parametrize("steps", range(1, 24, 2))
@pytest.mark.parametrize("format", FORMATS)
def test_a_power_cut_between_two_steps_of_a_commit_leaves_a_table_that_goes_on(disk, format, steps, monkeypatch):
    """The steps are those that make something durable: what follows them is on the disk in part, or not at all."""
    table, left, keep = Archive(format, local_lake(disk.at / "table")), [steps], LocalLake.make_durable

    def keep_or_die(lake, name):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        keep(lake, name)

    table.fill(5)
    monkeypatch.setattr(LocalLake, "make_durable", keep_or_die)
    with contextlib.suppress(Killed):
        table.fill(30)
    monkeypatch.undo()
    disk.cut()
    disk.back()
    table.fill(40)
    assert table.numbers() == list(range(40))
