"""Tables stay small: which files are joined, which rows stay, and what they still answer."""

import itertools
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.sync.tables.test_history import few_files, report, rows

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.metadata_diff import history_rows
from twinlog.spark.jobs.sync.replicas.replica_state import Change, JournalEntry, RangeDigest
from twinlog.spark.jobs.sync.tables import history
from twinlog.spark.jobs.sync.tables.history import HistoryRules, HistoryTables, check_kept
from twinlog.spark.jobs.sync.tables.table_join import (
    FILE_BYTES,
    JoinPlan,
    TableFile,
    complete_since_ms,
    kept_rows,
    one_per_interval,
    plan_join,
)
from twinlog.wire.bodies import DataVersion

DAY = 86_400_000
NOW = 1_700_000_000_000
SCHEMA = history._CHANGE_SCHEMA


def change(kind, key, sequence, at_ms, new, old=None, replica="r1"):
    version = {"stateVersion": 0, "timestamp": at_ms, "counter": sequence}
    names = ("broker", "kind", "key", "seenAt", "oldValue", "newValue", "version", "replica", "sequence")
    return dict(zip(names, ("a", kind, key, at_ms * 1000, old, new, version, replica, sequence), strict=True))


def table(*found):
    return pa.Table.from_pylist(list(found), SCHEMA)


def file(oldest, size=10, since=None):
    return TableFile(f"{oldest}-{'ab' * 4}{'' if since is None else f'-since{since}'}.parquet", size)


def test_only_many_small_files_are_joined_and_full_ones_stay():
    few = [file(n) for n in range(60)]
    assert plan_join(few, keep_ms=None, now_ms=NOW) is None
    full = file(0, size=FILE_BYTES)
    plan = plan_join([full, *few, file(60)], keep_ms=None, now_ms=NOW)
    assert plan == JoinPlan((*few, file(60))) and plan.new_name("cd").startswith("0-cd.")


def test_a_table_is_shortened_when_its_oldest_file_is_clearly_too_old():
    old, new = file(NOW - 100 * DAY, size=FILE_BYTES), file(NOW - DAY, size=FILE_BYTES)
    assert plan_join([old, new], keep_ms=99 * DAY, now_ms=NOW) is None, "not for every day again"
    plan = plan_join([old, new], keep_ms=90 * DAY, now_ms=NOW)
    assert plan == JoinPlan((old,), NOW - 90 * DAY)
    name = plan.new_name("cd")
    assert complete_since_ms([f"file:/x/{name}", new.name]) == NOW - 90 * DAY
    assert plan_join([TableFile(name, 10), new], keep_ms=90 * DAY, now_ms=NOW) is None
    assert JoinPlan((TableFile(name, 10), new)).new_name("ef").endswith(f"-since{NOW - 90 * DAY}.parquet")


def test_of_dropped_rows_the_last_of_each_key_stays_so_that_later_moments_are_answered():
    whole = table(
        change("topics", "A", 1, NOW - 9, "1"),
        change("topics", "A", 2, NOW - 8, "2"),
        change("topics", "B", 3, NOW - 7, "1"),
        change("topics", "B", 4, NOW - 6, None),  # deleted: needs no row
        change("topics", "A", 5, NOW + 1, "3"),
        change("topics", "C", 1, NOW - 5, None, replica="r2"),  # the highest number of a replica stays
    )
    columns = (("broker", "replica"), ("broker", "kind", "key"))
    kept = kept_rows(whole, NOW, "seenAt", columns).to_pylist()
    assert [(row["key"], row["replica"], row["sequence"]) for row in kept] == [
        ("A", "r1", 2),
        ("B", "r1", 4),
        ("A", "r1", 5),
        ("C", "r2", 1),
    ]
    assert kept_rows(whole, 0, "seenAt", columns) is whole


def test_offsets_of_an_interval_become_one_row_with_its_first_and_last_value():
    minute = 60_000
    start = NOW - NOW % (10 * minute)
    found = [change("offsets", "T@g", n, start + n * minute, str(n), old=str(n - 1)) for n in range(1, 15)]
    others = [change("topics", "T", 20 + n, start + n, "x") for n in range(3)]
    thin = one_per_interval(table(*others, *found), ("offsets",), 10 * minute)
    offsets = [
        (row["oldValue"], row["newValue"], row["sequence"]) for row in thin.to_pylist() if row["kind"] != "topics"
    ]
    assert offsets == [("0", "9", 9), ("9", "14", 14)]
    assert sum(row["kind"] == "topics" for row in thin.to_pylist()) == 3
    assert one_per_interval(thin, ("offsets",), 10 * minute).equals(thin), "again changes nothing"


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 50)), max_size=40), st.integers(1, 40))
def test_thinning_in_parts_gives_what_thinning_at_once_gives(moves, cut):
    found = [
        change("offsets", key, n, NOW + at * 1000, str(n), old=str(n - 1))
        for n, (key, at) in enumerate(sorted(moves, key=lambda one: one[1]), 1)
    ]
    at_once = one_per_interval(table(*found), ("offsets",), 10_000)
    first = one_per_interval(table(*found[:cut]), ("offsets",), 10_000)
    parts = one_per_interval(pa.concat_tables([first, table(*found[cut:])]), ("offsets",), 10_000)
    order = [("sequence", "ascending")]
    assert parts.sort_by(order).to_pylist() == at_once.sort_by(order).to_pylist()


def entries(first, count, at_ms):
    for n in range(first, first + count):
        offset = Change("offsets", "T@g", str(n - 1), str(n), DataVersion(counter=n))
        topic = Change("topics", f"T{n}", None, json.dumps(n), DataVersion(counter=n))
        yield JournalEntry(n, at_ms + n * 1000, [offset, topic] if n % 5 == 0 else [offset])


def test_a_running_job_joins_its_files_and_thins_offsets_and_loses_no_other_row(tmp_path, monkeypatch):
    few_files(monkeypatch, 5)
    tables, files = HistoryTables(tmp_path, HistoryRules(offsets_every_ms=600_000)), []
    start = NOW - NOW % 600_000
    for entry in entries(1, 40, start):
        ranges = [RangeDigest(entry.sequence, entry.sequence, entry.sequence + 1, 7, 1, "ha", 3, entry.seen_ms)]
        tables.add([report(entry, ranges=ranges)])
        files.append(len(list((tmp_path / "changes").glob("*.parquet"))))
    assert max(files) <= 6
    found = rows(tmp_path)
    assert sorted(row["key"] for row in found if row["kind"] == "topics") == sorted(f"T{n}" for n in range(5, 41, 5))
    offsets = sorted((int(row["oldValue"]), int(row["newValue"])) for row in found if row["kind"] == "offsets")
    assert offsets[0][0] == 0 and offsets[-1][1] == 40 and len(offsets) < 12
    assert all(one[1] == other[0] for one, other in itertools.pairwise(offsets))
    assert sorted(row["sequence"] for row in rows(tmp_path, "ranges")) == list(range(1, 41))
    assert HistoryTables(tmp_path).drained == tables.drained


def test_kinds_that_nobody_wants_are_left_out_and_their_entries_still_leave_the_journal(tmp_path):
    tables = HistoryTables(tmp_path, HistoryRules(kinds=("topics",)))
    tables.add([report(*entries(1, 7, NOW))])
    assert [(row["kind"], row["key"]) for row in rows(tmp_path)] == [("topics", "T5")]
    assert tables.drained[("a", "r1")].entries == 7


def test_a_history_that_was_shortened_says_so_for_a_moment_before(tmp_path, monkeypatch):
    day = 0

    monkeypatch.setattr(history, "wall_clock_ms", lambda: NOW + day * DAY)
    tables = HistoryTables(tmp_path, HistoryRules(keep_ms=10 * DAY))
    for day in range(30):
        topic = Change("topics", f"T{day % 3}", None, str(day), DataVersion(counter=day))
        tables.add([report(JournalEntry(day + 1, NOW + day * DAY, [topic]))])
    files = [str(one) for one in (tmp_path / "changes").iterdir()]
    days = sorted(int(row["newValue"]) for row in rows(tmp_path))
    assert len(days) < 16 and days[-11:] == list(range(19, 30)), "all of the last ten days"
    since = datetime.fromtimestamp(complete_since_ms(files) / 1000, UTC)
    assert NOW / 1000 < since.timestamp() <= NOW / 1000 + 19 * 86400
    check_kept(files, since)
    with pytest.raises(BadOption, match=r"2023-11-14 .* is before .*: the history before it was dropped"):
        check_kept(files, datetime.fromtimestamp(NOW / 1000 + 3600, UTC))
    assert HistoryTables(tmp_path, HistoryRules(keep_ms=10 * DAY)).drained == tables.drained


def test_a_question_while_files_are_joined_is_asked_again(tmp_path, monkeypatch):
    tables = HistoryTables(tmp_path)
    for entry in entries(1, 5, NOW):
        tables.add([report(entry)])
    stale = history_rows._files(str(tmp_path))
    few_files(monkeypatch, 2)
    HistoryTables(tmp_path)
    listed, files = iter([stale]), history_rows._files
    monkeypatch.setattr(history_rows, "_files", lambda path: next(listed, None) or files(path))
    when = datetime.fromtimestamp(NOW / 1000 + 60, UTC)
    assert [row["key"] for row in history_rows.rows_at(str(tmp_path), when, "a")] == ["T@g", "T5"]
    assert not stale[0].exists()
