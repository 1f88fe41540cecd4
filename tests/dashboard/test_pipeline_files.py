"""What data jobs leave in their directories, as the Pipeline page shows it."""

from tests.dashboard.jobs import NOW, make_archive, make_audit, make_sync

from twinlog.dashboard.pages.pipeline import (
    archives_markup,
    audits_markup,
    changes_markup,
    summary_markup,
    syncs_markup,
)
from twinlog.dashboard.pipeline_files import read_pipelines


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
