"""What data jobs leave in their directories, as the Pipeline page shows it."""

from datetime import UTC, datetime

import pyarrow as pa
from pyarrow import parquet as pq

from twinlog.dashboard.pages.pipeline import (
    archives_markup,
    audits_markup,
    changes_markup,
    summary_markup,
    syncs_markup,
)
from twinlog.dashboard.pipeline_files import read_pipelines
from twinlog.spark.jobs.archive.layout import ArchiveCommit, ArchiveHeader, TopicTotals, save_commit, save_header
from twinlog.spark.jobs.sync_status import BrokerState, SyncStatus, save_status

NOW = 1_900_000_000_000  # later than any file
SEEN = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def make_archive(home):
    home.mkdir()
    save_header(home, ArchiveHeader("parquet", "brokers", ("topic",)))
    save_commit(home, ArchiveCommit(12, "q", "r", (), {"Orders": TopicTotals(1_500, 2, 4_096)}, 13))
    for folder, numbers in (("offsets", (12, 13)), ("commits", (12,))):
        (home / "_checkpoint" / folder).mkdir(parents=True)
        for number in numbers:
            (home / "_checkpoint" / folder / str(number)).touch()


def make_sync(home, **more):
    broker = BrokerState(broker="broker-a", address="m:1", replica_end=750, master_end=1_000, lag_bytes=250)
    status = SyncStatus(tick=7, began_ms=NOW - 5_000, written_ms=NOW - 4_000, every_ms=5_000, brokers=[broker], **more)
    (home / "_status").mkdir(parents=True)
    save_status(home, status)
    changes = home / "_history" / "changes"
    changes.mkdir(parents=True)
    row = {"seenAt": SEEN, "broker": "broker-a", "kind": "topics", "key": "Orders", "oldValue": None, "newValue": "{}"}
    pq.write_table(pa.Table.from_pylist([row]), changes / "one.parquet")


def make_audit(home):
    home.mkdir()
    row = {"auditId": "a", "auditedAt": SEEN, "pair": "p", "master": "m:1", "replica": "r:1", "kind": "result"}
    rows = [{**row, "what": "equal", "size": 4096}, {**row, "kind": "note", "what": "x", "size": 1}]
    pq.write_table(pa.Table.from_pylist(rows), home / "part-0.parquet")


def test_archives_copies_and_audits_are_found_in_a_directory_of_them(tmp_path):
    make_archive(tmp_path / "archive")
    make_sync(tmp_path / "replicas")
    make_audit(tmp_path / "audits")
    view = read_pipelines([str(tmp_path)], NOW)
    assert view.problems == ()
    ((archive,), (sync,), (audit,)) = view.archives, view.syncs, view.audits
    assert (archive.batch, archive.next_batch, archive.rows, archive.bytes) == (12, 13, 1_500, 4_096)
    assert not archive.is_active, "its files are old"
    assert sync.is_running and sync.status.brokers[0].lag_bytes == 250
    assert [(one.key, one.old, one.new) for one in sync.changes] == [("Orders", None, "{}")]
    assert [(one.result, one.compared_bytes) for one in audit.rows] == [("equal", 4096)]
    assert "batch 13 is begun" in archives_markup(view.archives, NOW) and "1,500 rows" in summary_markup(
        view, is_configured=True
    )
    assert "75 %" in syncs_markup(view.syncs, NOW) and "250 B" in syncs_markup(view.syncs, NOW)
    assert "equal" in audits_markup(view.audits, NOW) and "Orders" in changes_markup(view.syncs)


def test_a_run_that_ended_or_vanished_is_called_so(tmp_path):
    make_sync(tmp_path / "done", ended_ms=NOW - 1_000)
    make_sync(tmp_path / "failed", ended_ms=NOW - 1_000, error="no disk")
    view = read_pipelines([str(tmp_path / "done"), str(tmp_path / "failed")], NOW)
    done, failed = (syncs_markup([one], NOW) for one in view.syncs)
    assert "ended 1.0 s ago" in done and "ended: no disk" in failed
    make_sync(tmp_path / "killed")
    later = read_pipelines([str(tmp_path / "killed")], NOW + 600_000)
    assert "no tick for 10 min" in syncs_markup(later.syncs, NOW + 600_000)


def test_a_directory_that_is_something_else_is_a_problem_with_its_name(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "_archive.json").write_text("{")
    (tmp_path / "empty").mkdir()
    paths = [str(tmp_path / name) for name in ("missing", "bad", "empty")]
    problems = read_pipelines(paths, NOW).problems
    assert len(problems) == 3 and all(path in problem for path, problem in zip(paths, problems, strict=True))
