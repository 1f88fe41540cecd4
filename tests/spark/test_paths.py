"""One rule for the paths of all jobs: local ones, with or without file:, and nothing that only looks like one."""

from pathlib import Path

import pytest

from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.compact import CompactJob
from twinlog.spark.jobs.archive.job import ArchiveJob
from twinlog.spark.jobs.endpoint import parse_endpoint
from twinlog.spark.jobs.restore.restore_plan import RestoreJob
from twinlog.spark.jobs.sync.sync_plan import SyncJob, check_job
from twinlog.spark.paths import local_path, table_location
from twinlog.spark.reading.stores.options import store_options


@pytest.mark.parametrize(
    "given",
    ["/a/b", "file:/a/b", "file:///a/b", "FILE:///a/b", "file://localhost/a/b", Path("/a/b"), Path("file:///a/b")],
)
def test_a_local_path_may_be_written_as_an_address(given):
    assert local_path(given, "--to") == Path("/a/b")


def test_a_relative_path_is_below_the_working_directory_and_may_hold_colons():
    for name in ("b", "a:b/c", "2026-11-15T10:00/x", "./s3a:/b", " b"):
        assert local_path(name, "--to") == Path.cwd() / name


@pytest.mark.parametrize(
    "given",
    [
        "s3a://bucket/a",
        "hdfs://host/a",
        "hdfs:/a",
        "abfss://c@a.b/d",
        "dbfs:/a",
        "file://host/a",
        "file:a",
        "file:",
        "",
        " s3a://bucket/a",
        "\thdfs:/a",
        " file:///a",
    ],
)
def test_other_addresses_are_refused_with_the_value_and_the_next_step(given):
    with pytest.raises(BadOption, match=r"--to '.*': .*(mount|give)") as raised:
        local_path(given, "--to")
    assert repr(given) in str(raised.value)


def test_a_table_that_spark_alone_writes_may_be_wherever_spark_can_write():
    for given in ("s3a://bucket/a", "/a", "a", "file:///a"):
        assert table_location(given, "--to") == given
    for given in ("", "file:a", "file://host/a", " s3a://bucket/a", " file:///a"):
        with pytest.raises(BadOption, match="--to"):
            table_location(given, "--to")


def test_a_table_whose_name_spark_would_take_for_a_scheme_is_refused_with_its_whole_path():
    for given in ("a:b", "a:b/c"):
        with pytest.raises(BadOption, match=r"--to 'a:b.*Spark reads a as a scheme") as raised:
            table_location(given, "--to")
        assert f"give {Path.cwd() / given}" in str(raised.value)
    assert table_location("/x/a:b", "--to") == "/x/a:b"
    assert table_location("x/a:b", "--to") == "x/a:b"


def test_every_job_means_the_same_by_the_same_path(tmp_path):
    given = f"file://{tmp_path}"
    assert ArchiveJob(target=given, name_server="n:1").root == tmp_path
    assert CompactJob(target=given, before="2026-01-01").root == tmp_path
    restore = RestoreJob(name_server="n:1", topics=("T",), archive=given, map_path=f"{given}/map")
    assert (str(restore.archive_place), str(restore.map_place)) == (str(tmp_path), str(tmp_path / "map"))
    job = SyncJob(to=given, addresses=("a:1",), history=f"{given}/h", checkpoint=f"{given}/c", stores={"b": given})
    done = check_job(job)
    assert (done.to, done.stores) == (str(tmp_path), {"b": str(tmp_path)})
    assert (done.history_place.local, done.checkpoint_path) == (tmp_path / "h", tmp_path / "c")
    assert parse_endpoint(given).store == tmp_path
    assert parse_endpoint(f"{given}@file:/x,/y").commit_log_dirs == (Path("/x"), Path("/y"))
    assert store_options({"path": given, "commitLogDirs": "file:///x"}).stores[0].commit_log_dirs == (Path("/x"),)
    assert store_options({"path": f"{given[:-1]}?"}).stores[0].root == tmp_path
