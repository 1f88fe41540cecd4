"""An archive on a disk that loses power: what was committed is there once, and what was not is archived again."""

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.faults.machine import PowerCut
from tests.spark.jobs.archive.staged import Killed, KilledAfter, batch_of, globbed, lake_of, stage, visible

from twinlog.spark.jobs.archive.checkpoint import drop_torn, keep_offsets
from twinlog.spark.jobs.archive.compact import compact_files
from twinlog.spark.jobs.archive.compaction_plan import CompactJob
from twinlog.spark.jobs.archive.files import commit_batch, finish_last_batch
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.write import WriteSorted
from twinlog.spark.schema import MESSAGE_COLUMNS


@pytest.fixture
def disk(tmp_path):
    with PowerCut.disk(tmp_path / "machine", 64) as disk:
        yield disk


def offsets_of(root, number):
    """What Spark writes before a batch runs, and does not flush."""
    for path in ("metadata", f"offsets/{number}", f"commits/{number - 1}"):
        (root / "_checkpoint" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "_checkpoint" / path).write_text("v1\n")


@pytest.mark.parametrize("steps", range(4))
def test_a_batch_counts_once_wherever_the_power_was_cut(disk, steps):
    root = disk.at / "archive"
    offsets_of(root, 0)
    keep_offsets(root, 0)
    commit_batch(root, 0, "q", "r", stage(root, batch_of(range(3))))
    offsets_of(root, 1)
    keep_offsets(root, 1)
    staged = stage(root, batch_of(range(3, 9), day=(20_000, 20_001)))
    try:
        commit_batch(root, 1, "q", "r", staged, KilledAfter(steps))
    except Killed:
        assert steps < 3
    disk.cut()
    disk.back()
    last = finish_last_batch(root)
    assert last.batch == (1 if steps else 0)
    assert visible(root) == globbed(root) == list(range(9 if steps else 3))
    assert (root / "_checkpoint" / "offsets" / str(last.batch)).read_text() == "v1\n"


def test_a_batch_that_was_followed_by_another_one_is_in_its_place(disk):
    """The commit of a batch no longer names the files of the batch before."""
    root = disk.at / "archive"
    for number in range(3):
        commit_batch(root, number, "q", "r", stage(root, batch_of(range(number, number + 1), topic=f"T{number}")))
    disk.cut()
    disk.back()
    assert finish_last_batch(root).batch == 2
    assert visible(root) == globbed(root) == [0, 1, 2]


def rewrite(files, directory, count):
    """With the writer of a real run: a file is durable when its name is returned."""
    columns = {name: kind for name, kind in MESSAGE_COLUMNS.items() if name != "topic"}
    write = WriteSorted(lake_of(directory.parent), directory.name, columns, "snappy")
    rows = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files).combine_chunks()
    return [name.rpartition("/")[2] for done in write(rows.to_batches()) for name in done["path"].to_pylist()]


@pytest.mark.parametrize("steps", range(8))
def test_a_compaction_leaves_the_old_files_or_the_new_wherever_the_power_was_cut(disk, steps):
    root = disk.at / "archive"
    for number in range(3):
        commit_batch(root, number, "q", "r", stage(root, batch_of(range(number * 3, number * 3 + 3))))
    job = CompactJob(target=root, before="2099-01-01")
    with contextlib.suppress(Killed):
        compact_files(root, job, rewrite, ops=KilledAfter(steps))
    disk.cut()
    disk.back()
    assert visible(root) == list(range(9))
    compact_files(root, job, rewrite)
    assert visible(root) == globbed(root) == list(range(9))


def test_what_was_half_written_in_the_checkpoint_is_planned_or_found_committed_again(tmp_path):
    offsets_of(tmp_path, 7)
    offsets_of(tmp_path, 8)
    for path, content in (("offsets/8", b""), ("commits/7", b"\0\0\0"), ("offsets/7", b"")):
        (tmp_path / "_checkpoint" / path).write_bytes(content)
        (tmp_path / "_checkpoint" / path).with_name(f".{path[-1]}.crc").touch()
    drop_torn(tmp_path, 7)
    left = sorted(str(path.relative_to(tmp_path / "_checkpoint")) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["commits/6", "metadata", "offsets/.7.crc", "offsets/7"]  # those of a committed batch are a loss


@pytest.mark.timeout(300)
def test_an_archive_goes_on_after_a_power_cut_with_every_message_once(spark, make_topic, disk):
    topic = make_topic()
    target = disk.at / "archive"
    job = ArchiveJob(target=target, name_server=topic.name_server, topics=(topic.name,), rows_max=40)
    for first in (0, 100):
        topic.send_numbers(100, start=first)
        assert archive(spark, job).total.rows == 100
        disk.cut()
        disk.back()
    assert archive(spark, job).total.rows == 0
    bodies = sorted(int(row.body) for row in read_archive(spark, target).select("body").collect())
    assert bodies == list(range(200))
