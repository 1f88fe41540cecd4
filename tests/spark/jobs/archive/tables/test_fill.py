"""Batches and their commits, in both formats: each message once, whatever happens to the runs."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

from tests.spark.jobs.archive.tables.filling import COLUMNS, RETRY, Archive, Numbers, delta_log, local_lake
from tests.spark.lake.archives import PausedLake

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.archive_plan import ArchiveJob
from twinlog.spark.jobs.archive.compaction_plan import CompactJob
from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.jobs.archive.parse.parser import parse_plan
from twinlog.spark.jobs.archive.tables import expire
from twinlog.spark.jobs.archive.tables.commits import NextBatch, TableCommit, check_unchanged, decode_commit, plan_next
from twinlog.spark.jobs.archive.tables.compact_tables import _compact_delta
from twinlog.spark.jobs.archive.tables.evolution import plan_evolution
from twinlog.spark.jobs.archive.tables.expire import expire_table
from twinlog.spark.jobs.archive.tables.job import _check_other_second
from twinlog.spark.jobs.archive.tables.table import ArchiveTable, open_table

FORMATS = ("iceberg", "delta")
PARSE = "json=id bigint, name string"


@pytest.fixture(params=FORMATS)
def table(request, tmp_path) -> Archive:
    return Archive(request.param, local_lake(tmp_path / "table"))


@pytest.fixture(params=FORMATS)
def parsed(request, tmp_path) -> Archive:
    return Archive(
        request.param, local_lake(tmp_path / "table"), local_lake(tmp_path / "table_unparsed"), parse_plan(PARSE)
    )


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class KilledAt:
    """A table whose process ends at a step, counted over both tables: before or after each commit."""

    inner: ArchiveTable
    left: list[int]

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def append(self, files, commit):
        self._step()
        self.inner.append(files, commit)
        self._step()

    def _step(self):
        if self.left[0] == 0:
            raise Killed
        self.left[0] -= 1


def test_batches_are_added_once_and_a_later_run_continues(table):
    done = table.fill(25)
    assert (done.batches, {topic: totals.rows for topic, totals in done.topics.items()}) == (
        3,
        {RETRY: 16, "Orders": 9},
    )
    assert table.numbers() == list(range(25))
    assert table.fill(25).batches == 0
    assert table.fill(30).batches == 1
    assert table.numbers() == list(range(30))
    row = next(row for row in table.rows() if row["queueOffset"] == 4)
    assert (row["topic"], str(row["day"]), dict(row["properties"])) == (RETRY, "2024-10-04", {"KEYS": "k4"})
    last = table.tables()[0].last()
    assert (last.batch, last.start, last.end) == (3, {"q": 25}, {"q": 30})


@pytest.mark.parametrize("steps", range(5))
def test_a_run_killed_before_or_after_any_commit_loses_and_doubles_nothing(parsed, steps):
    """A batch has four steps: before and after the commit to the second table, and to the main one."""
    main, second = parsed.tables()
    left = [steps]
    with pytest.raises(Killed):
        parsed.run(Numbers(20), main=KilledAt(main, left), second=KilledAt(second, left)).fill()
    parsed.fill(23, step=13)
    assert parsed.numbers() == [n for n in range(23) if n % 5]
    assert sorted(row["queueOffset"] for row in parsed.second_rows()) == list(range(0, 23, 5))
    one = next(row for row in parsed.rows() if row["queueOffset"] == 7)
    assert (one["id"], one["name"], one["body"]) == (7, "n7", b'{"id": 7, "name": "n7"}')
    assert all("JSON is malformed" in row["parseError"] for row in parsed.second_rows())


def test_a_batch_that_is_in_one_table_only_is_completed_with_its_own_range_and_parser(parsed):
    main, second = parsed.tables()
    left = [2]  # after the commit to the second table
    with pytest.raises(Killed):
        parsed.run(Numbers(20), main=KilledAt(main, left), second=KilledAt(second, left)).fill()
    assert (main.last(), second.last().end) == (None, {"q": 10})
    other = Archive(parsed.format, parsed.lake, parsed.second_lake, parse_plan("json=id bigint"))
    with pytest.raises(BadArchive, match="run once with the --parse of before"):
        other.fill(20)
    parsed.fill(20, step=3, first=2)  # the first batch is 0 to 10 nevertheless
    assert main.last().end == {"q": 20}
    assert parsed.numbers() == [n for n in range(20) if n % 5]
    other.fill(23)  # a parser that changed between batches: its columns are there, the others stay
    assert [row["name"] for row in other.rows() if row["queueOffset"] in (21, 22)] == [None, None]


@dataclass
class Overtaken:
    """A table whose run sleeps just after the n-th look at it, while another run does its work."""

    inner: ArchiveTable
    looks: int
    other: Callable[[], object]

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def last(self):
        found = self.inner.last()
        self.looks -= 1
        if self.looks == 0:
            self.other()
        return found


@pytest.mark.parametrize(("name", "looks"), [("main", 1), ("main", 2), ("second", 2), ("second", 3)])
def test_a_run_that_is_overtaken_adds_to_neither_table(parsed, name, looks):
    """The batch of the other run has no row that does not parse."""
    parsed.fill(6)
    late, quick = parsed.run(Numbers(20), "late"), parsed.run(Numbers(9, step=3), "quick")
    late = replace(late, **{name: Overtaken(getattr(late, name), looks, quick.fill)})
    with pytest.raises(BadArchive, match="another run"):
        late.fill()
    parsed.fill(20)
    assert sorted(row["queueOffset"] for row in parsed.second_rows()) == [0, 5, 10, 15]
    assert parsed.numbers() == [n for n in range(20) if n % 5]


def test_a_run_without_the_second_table_does_not_repeat_a_batch_that_was_begun_there(parsed, tmp_path):
    """It would put rows into the main table that the second one has."""
    main, second = parsed.tables()
    session = SimpleNamespace(conf=SimpleNamespace(getAll={}))  # has no settings
    job = ArchiveJob(target=tmp_path / "table", name_server="none:1", format=parsed.format)
    others = [job, replace(job, parse=PARSE, unparsed=tmp_path / "elsewhere")]
    parsed.fill(10)
    for one in others:
        _check_other_second(session, one, main)
    left = [2]  # after the commit to the second table
    with pytest.raises(Killed):
        parsed.run(Numbers(20), main=KilledAt(main, left), second=KilledAt(second, left)).fill()
    for one in others:
        with pytest.raises(BadArchive, match=r"rows of batch 1 are in .*table_unparsed, and not in the main table"):
            _check_other_second(session, one, main)
    _check_other_second(session, replace(job, parse=PARSE), main)
    _check_other_second(session, replace(job, target=tmp_path / "another"), main)


def test_a_second_run_is_refused_at_its_commit_and_nothing_is_doubled(table):
    table.fill(10)
    first, second = table.run(Numbers(30), "first"), table.run(Numbers(30), "second")
    write, entered = second.write, threading.Event()

    def while_the_first_commits(parts):
        found = write(parts)
        if not entered.is_set():
            entered.set()
            first.fill()
        return found

    second = table.run(Numbers(30), "second", write=while_the_first_commits)
    with pytest.raises(BadArchive, match=r"another run \(…first\) committed batch 2 meanwhile"):
        second.fill()
    assert table.numbers() == list(range(30))


def test_the_tables_own_metadata_has_batch_and_offsets(table, tmp_path):
    table.fill(15)
    if table.format == "delta":
        (info,) = [line["commitInfo"] for line in delta_log(tmp_path / "table", 2) if "commitInfo" in line]
        (txn,) = [line["txn"] for line in delta_log(tmp_path / "table", 2) if "txn" in line]
        assert (txn["appId"], txn["version"], info["userMetadata"]) == (
            "twinlog.archive",
            1,
            "twinlog archive, batch 1",
        )
    else:
        info = table.tables()[0].table.current_snapshot().summary.additional_properties
    assert (info["twinlog.batch"], json.loads(info["twinlog.offsets"])) == ("1", {"q": 15})


def test_files_without_their_table_are_not_a_new_archive(table):
    table.fill(25)
    log = table.lake.root.local / ("metadata" if table.format == "iceberg" else "_delta_log")
    log.rename(table.lake.root.local / "_moved")
    with pytest.raises(BadArchive, match=r"has files \(.*\.parquet\), and no table names them: restore"):
        table.fill(25)
    (table.lake.root.local / "_moved").rename(log)
    table.fill(30)
    assert table.numbers() == list(range(30))


def test_an_older_version_can_be_read_and_one_that_never_was_is_refused(table):
    table.fill(20)
    found = [one for one in table.tables()[0].versions() if one.batch is not None]
    assert [(one.batch, one.rows_added) for one in found] == [(0, 10), (1, 10)]
    assert table.numbers(found[0].version) == list(range(10))
    with pytest.raises(BadArchive, match="has no version 12345"):
        table.numbers(12345)


def test_a_table_that_was_rolled_back_continues_from_there(table):
    table.fill(30)
    main, _ = table.tables()
    second = next(one for one in main.versions() if one.batch == 1)
    if table.format == "delta":
        main.table.restore(second.version)
    else:
        main.table.manage_snapshots().rollback_to_snapshot(second.version).commit()
    assert table.numbers() == list(range(20))
    table.fill(40)
    assert table.numbers() == list(range(40))


def test_new_columns_are_added_and_missing_ones_stay(table):
    table.columns = {name: kind for name, kind in COLUMNS.items() if name not in ("keys", "msgId")}
    table.fill(10)
    table.columns = {name: kind for name, kind in COLUMNS.items() if name != "properties"}
    table.fill(20)
    assert table.tables()[0].columns().keys() == COLUMNS.keys()
    assert table.numbers() == list(range(20))
    rows = {row["queueOffset"]: row for row in table.rows()}
    assert (rows[3]["properties"], rows[13]["properties"]) == ([("KEYS", "k3")], None)
    assert table.tables()[0].last().batch == 1


def test_a_column_of_another_type_is_refused():
    assert plan_evolution("t", {"a": "int", "b": "int"}, {"a": "int", "c": "int"}).added == {"c": "int"}
    assert plan_evolution("t", {"a": "int", "b": "int"}, {"a": "int"}).absent == ("b",)
    with pytest.raises(BadArchive, match="column 'a' of t is int, this run brings string"):
        plan_evolution("t", {"a": "int"}, {"a": "string"})
    with pytest.raises(BadArchive, match="use the same letters"):
        plan_evolution("t", {"orderId": "int"}, {"orderid": "int"})


def test_expiry_removes_what_was_replaced_long_ago_and_what_nobody_names(table, tmp_path):
    table.fill(30)
    main, _ = table.tables()
    now = main.versions()[-1].made_ms
    lost = tmp_path / "table" / ("data/lost.parquet" if table.format == "iceberg" else "topic=Orders/lost.parquet")
    lost.write_text("of a task that failed")
    done = expire_table(table.place, 3600, now)
    assert (done.versions, done.files) == (0, 0)
    if table.format == "iceberg":  # Delta asks the clock itself
        done = expire_table(table.place, 3600, now + 3_700_000)
        assert (done.versions, done.versions_left, lost.exists()) == (2, 1, False)
    assert table.numbers() == list(range(30))
    assert main.last().batch == 2
    with pytest.raises(BadOption, match="give 1h or more"):
        expire_table(table.place, 600, now)


def test_a_clock_that_is_ahead_of_the_store_does_not_make_files_old(table, tmp_path, monkeypatch):
    table.fill(10)
    lost = tmp_path / "table" / "data" / "of-a-batch-that-is-being-written.parquet"
    lost.parent.mkdir(exist_ok=True)
    lost.write_text("rows")
    now = int(time.time() * 1000) + 2 * 3_600_000
    monkeypatch.setattr(expire, "wall_clock_ms", lambda: now)
    assert expire_table(table.place, 3600, now).files == 0
    assert lost.exists()
    assert table.numbers() == list(range(10))


def test_delta_keeps_the_offsets_of_the_last_batch_when_it_removes_old_log_entries(tmp_path):
    table = Archive("delta", local_lake(tmp_path / "t"))
    table.fill(20)
    main, _ = table.tables()
    for step in (lambda: _compact_delta(main, CompactJob(target="", before="2999-01-01")), lambda: None):
        step()
        for path in (tmp_path / "t" / "_delta_log").iterdir():
            os.utime(path, (1, 1))  # nothing arrived for more than the 30 days that Delta keeps its log
        expire_table(table.place, 3600, 0)
    assert not (tmp_path / "t" / "_delta_log" / f"{2:020d}.json").exists()
    assert open_table(table.place).last().batch == 1
    table.fill(30)
    assert table.numbers() == list(range(30))


def test_a_snapshot_that_was_current_until_just_now_is_kept_however_old_it_is(tmp_path):
    table = Archive("iceberg", local_lake(tmp_path / "t"))
    table.fill(10)
    main, _ = table.tables()
    made = main.versions()[0].made_ms
    table.fill(20)
    replaced = main.versions()[1].made_ms
    assert expire_table(table.place, 3600, made + 3_600_001 if replaced > made + 1 else made).versions == 0
    assert expire_table(table.place, 3600, replaced + 3_600_001).versions == 1


def test_an_iceberg_table_is_found_though_the_hint_is_old_or_lost(tmp_path):
    table = Archive("iceberg", local_lake(tmp_path / "t"))
    table.fill(20)
    hint = tmp_path / "t" / "metadata" / "version-hint.text"
    for text in ("1", "999", "no number"):
        hint.write_text(text)
        assert table.numbers() == list(range(20))
    hint.unlink()
    table.fill(30)
    assert (table.numbers(), hint.read_text()) == (list(range(30)), "4")


def test_an_iceberg_commit_that_slept_until_its_version_had_expired_takes_nothing_back(tmp_path):
    table = Archive("iceberg", local_lake(tmp_path / "t"))
    table.fill(10)

    def meanwhile():
        Archive("iceberg", table.lake).fill(50)
        for version in (3, 4):  # as `expire` does after a while
            (tmp_path / "t" / "metadata" / f"v{version}.metadata.json").unlink()

    late = Archive("iceberg", PausedLake(table.lake, "put_if_absent", "metadata/v3", meanwhile))
    with pytest.raises(BadArchive, match="another run"):
        late.fill(30)
    assert table.numbers() == list(range(50))


def test_iceberg_in_a_sql_catalog_with_a_table_of_somebody_else_beside_it(tmp_path):
    from pyiceberg.catalog import load_catalog

    given = {"name": "prod", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    table = Archive("iceberg", local_lake(tmp_path / "t"), catalog=given, name="lake.messages")
    table.fill(20)
    catalog = load_catalog("prod", type="sql", uri=given["uri"])
    assert catalog.load_table("lake.messages").scan().to_arrow().num_rows == 20
    catalog.create_table("lake.other", table.tables()[0].table.schema(), location=f"file://{tmp_path}/other")
    table.name = "lake.other"
    with pytest.raises(BadArchive, match=r"lake\.other was not made by twinlog"):
        table.fill(20)
    table.name, table.lake = "lake.messages", local_lake(tmp_path / "elsewhere")
    with pytest.raises(BadArchive, match="archive to that directory"):
        table.fill(20)


def test_a_catalog_that_does_not_answer_is_named(tmp_path):
    table = Archive("iceberg", local_lake(tmp_path / "t"), catalog={"type": "rest", "uri": "http://127.0.0.1:1"})
    with pytest.raises(BadOption, match=r"the catalog type=rest, uri=http://127\.0\.0\.1:1 cannot be used"):
        table.fill(10)
    table.catalog = {"type": "rest", "uri": "http://127.0.0.1:1/?password=hunter2"}
    with pytest.raises(BadOption, match="the catalog type=rest cannot be used") as told:
        table.fill(10)
    assert "hunter2" not in str(told.value)
    table.catalog = {"type": "sqll", "uri": "sqlite:///x"}
    with pytest.raises(BadOption, match="'sqll' is not a valid CatalogType"):
        open_table(table.place)


def test_a_delta_archive_that_sparks_sink_filled_continues_from_its_checkpoint(tmp_path):
    table = Archive("delta", local_lake(tmp_path / "t"))
    main, _ = table.tables()
    files = table.writer(main, None)([range(10)]).main
    main.append(files, TableCommit(batch=0, run="", start={}, end={}))
    # What the sink of Spark leaves: a txn by the query's id, and the offsets in the checkpoint.
    log = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "txn" in line:
            line["txn"] = {"appId": "query-1", "version": 4}
        if "commitInfo" in line:
            line["commitInfo"] = {"operation": "STREAMING UPDATE", "timestamp": 1}
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(BadArchive, match="has rows, and neither offsets nor a checkpoint"):
        table.fill(20)
    checkpoint = tmp_path / "t" / "_checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"query-1"}')
    (checkpoint / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"q":10}')
    table.fill(20)
    assert table.numbers() == list(range(20))
    assert main.last().batch == 5


# -- the rules, without tables -------------------------------------------------------------------------


def commit(batch, start, end, run="r", parse="") -> TableCommit:
    return TableCommit(batch=batch, run=run, start={"q": start}, end={"q": end}, parse=parse)


def test_properties_are_read_as_they_were_written_and_those_of_others_are_none():
    one = commit(3, 5, 8, parse="x")
    assert decode_commit(one.encode()) == one
    assert decode_commit({"operation": "append", "added-records": "3"}) is None
    with pytest.raises(BadArchive, match="cannot be read"):
        decode_commit({"twinlog.batch": "x", "twinlog.offsets": "{}"})


def test_the_next_batch_follows_from_what_both_tables_have():
    assert plan_next(None, None, "") == NextBatch(0, None)
    assert plan_next(commit(3, 5, 8), None, "") == NextBatch(4, {"q": 8})
    assert plan_next(commit(3, 5, 8), commit(2, 1, 5), "p") == NextBatch(4, {"q": 8})
    assert plan_next(commit(3, 5, 8), commit(4, 8, 9, parse="p"), "p") == NextBatch(4, {"q": 8}, {"q": 9})
    for second in (commit(5, 9, 10), commit(4, 7, 9)):
        with pytest.raises(BadArchive, match="was one of them rolled back"):
            plan_next(commit(3, 5, 8), second, "")


def test_a_change_by_somebody_else_is_told_apart():
    check_unchanged(commit(1, 0, 5), commit(1, 0, 5))
    with pytest.raises(BadArchive, match="rolled back while"):
        check_unchanged(commit(1, 0, 5), None)
    with pytest.raises(BadArchive, match="another run"):
        check_unchanged(commit(1, 0, 5), commit(2, 5, 6, run="other"))
