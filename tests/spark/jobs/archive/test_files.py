"""An archive's files without Spark: what a batch adds, and what a run killed after any step leaves behind."""

import errno
import os
import shutil
import stat
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.archive.staged import (
    MONDAY,
    Killed,
    KilledAfter,
    batch_of,
    globbed,
    lake_of,
    rewrite,
    stage,
    visible,
)

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.archive_plan import ArchiveJob, check_job
from twinlog.spark.jobs.archive.compact import compact_files
from twinlog.spark.jobs.archive.compaction_plan import CompactJob, plan_compaction
from twinlog.spark.jobs.archive.files import (
    commit_batch,
    finish_last_batch,
    held,
    partition_files,
    swap_place,
)
from twinlog.spark.jobs.archive.job import archive
from twinlog.spark.jobs.archive.layout import (
    ArchiveCommit,
    ArchiveHeader,
    BadArchive,
    TopicTotals,
    check_fits,
    chosen,
    load_commit,
    load_header,
    plan_commit,
    save_header,
    save_json,
    topic_of,
)
from twinlog.spark.jobs.archive.query import cause_of, rows_left
from twinlog.spark.jobs.archive.source import ArchiveSpec, decode_spec, keep_messages
from twinlog.spark.jobs.archive.write import (
    CannotWriteArchive,
    FileWriter,
    WriteSorted,
    partition_name,
    split,
)
from twinlog.spark.schema import MESSAGE_COLUMNS


@pytest.mark.parametrize("steps", range(5))
def test_a_batch_counts_once_wherever_its_run_was_killed(tmp_path, steps):
    commit_batch(tmp_path, 0, "q", "r", stage(tmp_path, batch_of(range(3))))
    staged = stage(tmp_path, batch_of(range(3, 9), day=(MONDAY, MONDAY + 1)))
    ops = KilledAfter(steps)
    try:
        commit_batch(tmp_path, 1, "q", "r", staged, ops)
    except Killed:
        assert steps < 3  # the commit and two moves
    seen = {0: [0, 1, 2], 1: [0, 1, 2]}.get(steps)  # the commit is a decision, the moves come after it
    assert visible(tmp_path) == globbed(tmp_path)
    assert globbed(tmp_path) == seen or (seen is None and len(set(globbed(tmp_path))) == len(globbed(tmp_path)))
    last = finish_last_batch(tmp_path)
    assert not (tmp_path / "_staging").exists()
    if steps == 0:  # nothing was decided: the batch is repeated
        assert not last.covers(1, "q")
        commit_batch(tmp_path, 1, "q", "r2", stage(tmp_path, batch_of(range(3, 9))))
    else:
        assert last.covers(1, "q")
    assert visible(tmp_path) == globbed(tmp_path) == list(range(9))


def test_a_file_that_is_being_written_does_not_look_like_one_of_the_table(tmp_path):
    writer = FileWriter(lake_of(tmp_path), "_staging/run", MESSAGE_COLUMNS, "snappy")
    writer.write(batch_of(range(5)))
    assert (globbed(tmp_path), len(list(tmp_path.rglob("*.staged")))) == ([], 1)
    assert [file.rows for file in writer.finish()] == [5]
    assert globbed(tmp_path) == []


def test_what_a_killed_run_of_an_older_version_left_is_finished_and_cleaned(tmp_path):
    """There, staged files had the names of Parquet files."""
    staged = stage(tmp_path, batch_of(range(5)))
    for file in staged:
        (tmp_path / file.path).rename((tmp_path / file.path).with_suffix(".parquet"))
    staged = [replace(file, path=str(Path(file.path).with_suffix(".parquet"))) for file in staged]
    with pytest.raises(Killed):
        commit_batch(tmp_path, 0, "q", "r", staged, KilledAfter(1))
    for left in ("_staging/run/x.parquet", "_compacting/u/topic=Orders/day=2024-10-04/part-0.parquet"):
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / staged[0].path, tmp_path / left)
    assert len(globbed(tmp_path)) == 15
    finish_last_batch(tmp_path)
    assert visible(tmp_path) == globbed(tmp_path) == list(range(5))


def test_files_that_a_failed_attempt_left_in_staging_never_count(tmp_path):
    stage(tmp_path, batch_of(range(5)))
    commit_batch(tmp_path, 0, "q", "r", stage(tmp_path, batch_of(range(5))))
    assert visible(tmp_path) == list(range(5))
    finish_last_batch(tmp_path)
    assert visible(tmp_path) == list(range(5))


def test_a_run_adds_up_what_it_committed_and_the_next_one_starts_from_nothing(tmp_path):
    staged = stage(tmp_path, batch_of(range(4), topic=("A", "B")))
    first = plan_commit(ArchiveCommit(), 0, "q", "r", staged)
    second = plan_commit(first, 1, "q", "r", staged)
    assert {topic: totals.rows for topic, totals in second.topics.items()} == {"A": 4, "B": 4}
    assert second.batches == 2
    assert plan_commit(second, 2, "q", "other", []).topics == {}
    assert len({new for _, new in (*first.moves, *second.moves)}) == 4  # no name is used twice


def test_an_archive_whose_checkpoint_was_replaced_is_refused():
    with pytest.raises(BadArchive, match="checkpoint was removed or replaced"):
        ArchiveCommit(batch=7, query="old").covers(0, "new")


def test_a_commit_survives_being_written_and_read(tmp_path):
    commit = commit_batch(tmp_path, 3, "q", "r", stage(tmp_path, batch_of(range(4), topic=("A", "%RETRY%g"))))
    assert load_commit(tmp_path) == commit
    assert set(commit.topics) == {"A", "%RETRY%g"}
    assert sum(commit.topics.values(), TopicTotals()).rows == 4


@given(st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="%|_-"), min_size=1))
def test_a_topic_is_read_back_from_its_directory(topic):
    name = partition_name(topic, MONDAY)
    assert topic_of(name) == topic
    assert name.count("/") == 1
    assert name.endswith("/day=2024-10-04")


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 3)), min_size=1, max_size=40))
def test_a_batch_is_split_into_topics_and_days_without_loss(rows):
    batch = batch_of(range(len(rows)), topic=[t for t, _ in rows], day=[MONDAY + d for _, d in rows])
    parts = dict(split(batch))
    assert set(parts) == {(topic, MONDAY + day) for topic, day in rows}
    seen = [n for part in parts.values() for n in part.column("queueOffset").to_pylist()]
    assert sorted(seen) == list(range(len(rows)))
    for (topic, _), part in parts.items():
        assert set(part.column("topic").to_pylist()) == {topic}
        assert part.column("queueOffset").to_pylist() == sorted(part.column("queueOffset").to_pylist())


def test_files_hold_every_column_but_those_of_their_directory(tmp_path):
    (file,) = stage(tmp_path, batch_of(range(3)))
    assert pq.read_schema(tmp_path / file.path).names == [name for name in MESSAGE_COLUMNS if name != "topic"]
    assert (file.rows, file.partition) == (3, "topic=Orders/day=2024-10-04")
    assert file.bytes == (tmp_path / file.path).stat().st_size


def test_a_target_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "_staging").write_text("a file where a directory should be")
    with pytest.raises(CannotWriteArchive, match=r"_staging/run cannot be written .*the batch is repeated"):
        stage(tmp_path, batch_of(range(3)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_reported_as_such(tmp_path, monkeypatch):
    (tmp_path / "_staging" / "run").mkdir(parents=True)
    (tmp_path / "_staging" / "run" / "full.staged").symlink_to("/dev/full")
    monkeypatch.setattr("twinlog.spark.jobs.archive.write.uuid.uuid4", lambda: SimpleNamespace(hex="full"))
    with pytest.raises(CannotWriteArchive, match=r"No space left on device.*free space"):
        stage(tmp_path, batch_of(range(3)))


def test_topics_of_a_store_are_chosen_by_name_or_pattern():
    columns = chosen(("body",))
    spec = ArchiveSpec(source="stores", options={}, columns=columns, root="", staging="", compression="")
    assert decode_spec(spec.encode()) == spec
    batch = batch_of(range(4), topic=("Orders", "SCHEDULE_TOPIC_XXXX", "Payments", "Old"))

    def topics(**more):
        values = {**{name: getattr(spec, name) for name in spec.__slots__}, **more}
        return keep_messages(batch, ArchiveSpec(**values)).column("topic").to_pylist()

    assert topics(topics=("Old", "Orders")) == ["Orders", "Old"]
    assert topics(unwanted="SCHEDULE_.*") == ["Orders", "Payments", "Old"]
    assert topics(pattern="O.*") == ["Orders", "Old"]
    assert keep_messages(batch, spec).schema.names == list(columns)
    assert keep_messages(batch_of(range(4), topic="Halves"), spec).num_rows == 0  # they are in no queue


# -- what an archive refuses ---------------------------------------------------------------------------


def test_a_description_that_makes_no_sense_is_refused_before_spark_starts():
    for job, told in (
        (ArchiveJob(target="/a"), "a name server or store directories"),
        (ArchiveJob(target="/a", name_server="n:1", stores=("/s",)), "not both"),
        (ArchiveJob(target="/a", name_server="n:1", format="parkett"), "did you mean 'parquet'"),
        (ArchiveJob(target="/a", name_server="n:1", compression="zst"), "did you mean 'zstd'"),
        (ArchiveJob(target="/a", name_server="n:1", topics=("A",), pattern="B"), "topics or a pattern"),
        (ArchiveJob(target="/a", stores=("/s",), rows_max=5), "limit the bytes"),
        (ArchiveJob(target="/a", name_server="n:1", bytes_max="5m"), "limit the rows"),
        (ArchiveJob(target="s3:///a", name_server="n:1"), "names no bucket"),
        (
            ArchiveJob(target="hdfs://host/a", name_server="n:1", format="delta"),
            "delta tables .*local directories only",
        ),
        (
            ArchiveJob(target="gs://b/a", name_server="n:1", format="iceberg"),
            "iceberg tables are .*--format parquet, s3a",
        ),
        (ArchiveJob(target="abfs://c@a/a", name_server="n:1", format="iceberg"), "local directories only"),
        (
            ArchiveJob(target="/a", name_server="n:1", format="delta", parse="json=a int", unparsed="hdfs://host/b"),
            "hdfs://host/b: delta tables .*; give s3a://",
        ),
        (
            ArchiveJob(target="/a", name_server="n:1", parse="json=a int"),
            "--parse fills two tables, and a parquet archive is only one: give --format iceberg or --format delta",
        ),
        (ArchiveJob(target="/a", name_server="n:1", columns=("bodi",)), "did you mean 'body'"),
    ):
        with pytest.raises((BadOption, BadArchive), match=told):
            check_job(job)


def test_a_source_that_is_not_there_is_named_before_anything_is_written(tmp_path, make_topic):
    topic = make_topic()
    for job, told in (
        (ArchiveJob(target=tmp_path / "a", name_server="127.0.0.1:1", topics=("A",)), "127.0.0.1:1"),
        (ArchiveJob(target=tmp_path / "a", name_server=topic.name_server, topics=("Nowhere",)), "Nowhere"),
        (ArchiveJob(target=tmp_path / "a", name_server=topic.name_server, pattern="Nowhere.*"), "no topic matches"),
        (ArchiveJob(target=tmp_path / "a", stores=(str(tmp_path / "none"),)), "no store directory"),
    ):
        with pytest.raises(Exception, match=told):
            archive(None, job)  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    job = ArchiveJob(target=tmp_path / "file" / "a", name_server=topic.name_server, topics=(topic.name,))
    with pytest.raises(BadArchive, match=r"cannot be written \(Not a directory\)"):
        archive(None, job)  # pyright: ignore[reportArgumentType]


def test_an_archive_takes_only_what_fits_it(tmp_path):
    found = ArchiveHeader("parquet", "brokers", chosen(("body",)))
    for wanted, told in (
        (ArchiveHeader("delta", "brokers", found.columns), "give --format parquet"),
        (ArchiveHeader("parquet", "stores", found.columns), "is filled from brokers"),
        (ArchiveHeader("parquet", "brokers", chosen(("body", "keys"))), "it lacks keys"),
        (ArchiveHeader("parquet", "brokers", chosen(("keys",))), "it also has body; it lacks keys"),
    ):
        with pytest.raises(BadArchive, match=told):
            check_fits(tmp_path, found, wanted)
    check_fits(tmp_path, found, found)
    (tmp_path / "_archive.json.new").write_text("{")  # a run was killed when it had just begun
    assert load_header(tmp_path) is None
    (tmp_path / "other.parquet").write_text("")
    with pytest.raises(BadArchive, match=r"is not an archive, it holds other\.parquet"):
        load_header(tmp_path)


def test_a_header_that_is_damaged_is_refused(tmp_path):
    save_header(tmp_path, ArchiveHeader("parquet", "brokers", chosen(())))
    assert load_header(tmp_path) == ArchiveHeader("parquet", "brokers", tuple(MESSAGE_COLUMNS))
    for text, told in (("{", "is not JSON"), ("[]", "not a JSON object"), ('{"format": "parquet"}', "cannot be used")):
        (tmp_path / "_archive.json").write_text(text)
        with pytest.raises(BadArchive, match=told):
            load_header(tmp_path)


def test_a_second_run_on_the_same_archive_is_refused(tmp_path):
    with held(tmp_path / "lock"), pytest.raises(BadArchive, match="busy"), held(tmp_path / "lock", "busy"):
        pass


def test_the_cause_of_a_failure_is_one_line():
    report = (
        "[STREAM_FAILED] Query terminated\nTraceback\ntwinlog.spark.errors.DataLoss: topic T: gone; do this\n at org"
    )
    assert cause_of(RuntimeError(report)) == "topic T: gone; do this"
    report = "[STREAM_FAILED] Failed when perform latestOffset: twinlog.spark.errors.DataLoss: T: gone; do this"
    assert cause_of(RuntimeError(report)) == "T: gone; do this"
    report = "Job aborted\nCaused by: java.io.IOException: disk\nCaused by: x.Y: No space left on device"
    assert cause_of(RuntimeError(report)).startswith("No space left on device; what was committed before stays")


def test_what_is_left_comes_from_the_progress_of_the_query():
    source = {"endOffset": '{"T@b@0":5,"T@b@1":1}', "latestOffset": '{"T@b@0":9,"T@b@1":1,"T@b@2":3}'}
    assert rows_left(source) == 4
    assert rows_left({"endOffset": None, "latestOffset": "{}"}) is None


# -- compaction ------------------------------------------------------------------------------------------


def fill(root: Path, batches: int = 4) -> list[int]:
    for number in range(batches):
        rows = range(number * 10, number * 10 + 10)
        commit_batch(root, number, "q", "r", stage(root, batch_of(rows, day=(MONDAY, MONDAY + 1))))
    return list(range(batches * 10))


JOB = CompactJob(target="", before="2024-10-05")
OLD, NEW = "topic=Orders/day=2024-10-04", "topic=Orders/day=2024-10-05"


def test_small_files_of_days_that_are_over_become_one(tmp_path):
    everything = fill(tmp_path)
    done = compact_files(tmp_path, JOB, rewrite)
    assert (done.partitions, done.files_before, done.files_after, done.left) == (1, 4, 1, ())
    assert (len(partition_files(tmp_path, OLD)), len(partition_files(tmp_path, NEW))) == (1, 4)
    assert visible(tmp_path) == everything
    assert compact_files(tmp_path, JOB, rewrite).partitions == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["topic=Orders"]
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to any group")
@pytest.mark.parametrize("mode", [0o2750, 0o2775, 0o750])
def test_a_compacted_partition_keeps_owner_group_and_mode(tmp_path, mode):
    root = tmp_path / "archive"
    root.mkdir()
    fill(root)
    for directory in (root, *root.glob("topic=*"), *root.glob("topic=*/day=*")):
        os.chown(directory, 4321, 1234)
        directory.chmod(mode)
    assert compact_files(root, JOB, rewrite).partitions == 1
    found = (root / OLD).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4321, 1234, mode)
    if mode & stat.S_ISGID:
        assert {path.stat().st_gid for path in (root / OLD).iterdir()} == {1234}


def test_an_owner_that_cannot_be_given_does_not_stop_a_compaction(tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    everything = fill(tmp_path)
    (tmp_path / OLD).chmod(0o711)
    for name in ("chown", "chmod"):
        monkeypatch.setattr(os, name, fail)
    assert compact_files(tmp_path, JOB, rewrite).partitions == 1
    assert visible(tmp_path) == everything


def test_the_directory_beside_an_archive_is_private(tmp_path):
    root = tmp_path / "archive"
    root.mkdir()
    assert stat.S_IMODE(swap_place(root).stat().st_mode) == 0o700


@pytest.mark.parametrize("steps", range(10))
def test_compaction_killed_after_any_step_leaves_old_or_new(tmp_path, steps):
    everything = fill(tmp_path)
    try:
        compact_files(tmp_path, JOB, rewrite, ops=KilledAfter(steps))
    except Killed:
        assert steps < 9
    assert visible(tmp_path) == globbed(tmp_path) == everything
    assert len(partition_files(tmp_path, OLD)) in (1, 4)
    compact_files(tmp_path, JOB, rewrite)
    assert visible(tmp_path) == globbed(tmp_path) == everything
    assert len(partition_files(tmp_path, OLD)) == 1
    assert not (tmp_path / "_compacting").exists()


def test_what_a_killed_compaction_left_is_removed_by_the_next_run_of_the_archive(tmp_path):
    everything = fill(tmp_path)
    with pytest.raises(Killed):
        compact_files(tmp_path, JOB, rewrite, ops=KilledAfter(7))
    (beside,) = tmp_path.parent.glob(f".{tmp_path.name}*")
    with held(tmp_path / "_compact.lock"):
        finish_last_batch(tmp_path)
    assert beside.exists(), "a compaction is at work"
    finish_last_batch(tmp_path)
    assert not beside.exists()
    assert visible(tmp_path) == globbed(tmp_path) == everything


def test_an_archive_without_a_usable_directory_beside_it_is_compacted_inside(tmp_path):
    root = tmp_path / "archive"
    root.mkdir()
    everything = fill(root)
    swap_place(root).rmdir()
    (tmp_path / ".archive.compacting").write_text("")  # as on a mount point, or without permission
    assert swap_place(root) == root / "_compacting"
    assert compact_files(root, JOB, rewrite).partitions == 1
    assert visible(root) == globbed(root) == everything


def test_a_batch_that_arrives_meanwhile_is_not_lost(tmp_path):
    everything = fill(tmp_path)

    def slowly(files, directory, count):
        names = rewrite(files, directory, count)
        commit_batch(tmp_path, 4, "q", "r", stage(tmp_path, batch_of(range(40, 45))))
        return names

    done = compact_files(tmp_path, JOB, slowly)
    assert done.left == (OLD,)
    assert visible(tmp_path) == [*everything, *range(40, 45)]
    assert compact_files(tmp_path, JOB, rewrite).left == ()
    assert visible(tmp_path) == [*everything, *range(40, 45)]


def test_a_rewrite_that_loses_rows_changes_nothing(tmp_path):
    everything = fill(tmp_path)
    with pytest.raises(BadArchive, match=r"has 20 rows, 5 after rewriting: it stays as it was"):
        compact_files(tmp_path, JOB, lambda files, directory, count: rewrite(files[:1], directory, count))
    assert visible(tmp_path) == everything


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_dead_attempt_of_a_task_wrote_is_not_taken(tmp_path, whole):
    everything = fill(tmp_path)

    def again(files, directory, count):
        names = rewrite(files, directory, count)
        left = (directory / names[0]).read_bytes()
        (directory / "a dead attempt.staged").write_bytes(left if whole else left[:100])
        return names

    done = compact_files(tmp_path, JOB, again)
    assert (done.partitions, done.files_after) == (1, 1)
    assert visible(tmp_path) == globbed(tmp_path) == everything
    assert not list(tmp_path.rglob("*.staged"))
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}*"))


def test_a_task_returns_the_name_and_the_rows_of_its_file(tmp_path):
    columns = {name: kind for name, kind in MESSAGE_COLUMNS.items() if name != "topic"}
    write = WriteSorted(lake_of(tmp_path), "new", columns, "snappy")
    batches = [batch_of(rows).drop_columns(["topic"]) for rows in (range(5), range(5, 8))]
    names = []
    for _attempt in range(2):
        (made,) = write(batches)
        (row,) = made.to_pylist()
        assert row["rows"] == pq.read_metadata(tmp_path / row["path"]).num_rows == 8
        assert row["bytes"] == (tmp_path / row["path"]).stat().st_size
        names.append(row["path"])
    assert sorted(names) == sorted(f"new/{path.name}" for path in (tmp_path / "new").iterdir())
    assert list(write([])) == []


def test_a_killed_batch_is_finished_before_compaction(tmp_path):
    fill(tmp_path)
    staged = stage(tmp_path, batch_of(range(40, 45)))
    with pytest.raises(Killed):
        commit_batch(tmp_path, 4, "q", "r", staged, KilledAfter(1))
    compact_files(tmp_path, JOB, rewrite)
    assert visible(tmp_path) == list(range(45))


def test_what_is_worth_compacting():
    found = {
        "topic=A/day=2026-01-01": {"1": 60, "2": 60, "3": 60},
        "topic=A/day=2026-01-02": {"1": 100, "2": 100},  # two files are what it would become
        "topic=B/day=2026-01-01": {"1": 10},
        "topic=B/day=2026-01-03": {"1": 1, "2": 1},  # not over yet
    }
    job = CompactJob(target="", before="2026-01-03", file_bytes=100)
    assert [(one.partition, one.count) for one in plan_compaction(found, job)] == [("topic=A/day=2026-01-01", 2)]
    only_b = CompactJob(target="", before="2026-01-04", file_bytes=100, topics=("B",))
    assert [one.partition for one in plan_compaction(found, only_b)] == ["topic=B/day=2026-01-03"]


def test_days_in_directories_are_dates():
    assert partition_name("T", 0) == "topic=T/day=1970-01-01"
    assert np.datetime64(MONDAY, "D").astype(date) == date(2024, 10, 4)


def test_a_link_in_the_place_of_an_archives_file_is_never_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "commit.json.new").symlink_to(victim)
    (tmp_path / "_lock").symlink_to(victim)
    save_json(tmp_path / "commit.json", {})
    assert not (tmp_path / "commit.json.new").exists()
    with pytest.raises(OSError, match="_lock is a symbolic link"), held(tmp_path / "_lock"):
        pass
    assert victim.read_text() == "precious"
