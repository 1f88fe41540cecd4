"""Paths on file systems that a job cannot use end the command before Spark starts, and nothing is written."""

import re

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from twinlog.cli.main import app
from twinlog.spark.jobs.archive.layout import ArchiveHeader, chosen, save_header

LINES = [
    "sync --address a:1 --to s3a://bucket/x",
    "sync --address a:1 --to hdfs://host/x",
    "sync --address a:1 --to HERE --history s3a:/bucket/x",
    "sync --address a:1 --to HERE --checkpoint s3a://bucket/x",
    "sync --address a:1 --to HERE --store b=s3a://bucket/x",
    "archive s3a:/bucket/x -n a:1 -t T",
    "archive hdfs://host/x -n a:1 -t T --format delta",
    "archive HERE/new --store s3a://bucket/x",
    "archive HERE/new -n a:1 -t T --option initialOffsetsLocation=hdfs://host/x",
    "compact s3a:/bucket/x",
    "restore -n a:1 -t T --archive gs:///bucket/x",
    "restore -n a:1 -t T --archive HERE --map s3:/bucket/x",
    "restore -n a:1 -t T --store s3a://bucket/x",
    "restore -n a:1 -t T --archive HERE --groups g --group-offsets b=s3a://bucket/x",
    "audit s3a://bucket/x HERE",
    "audit HERE HERE@s3a://bucket/x",
    "audit HERE HERE/other --to file:x",
    "lag -n a:1 --to file:x --once",
    "lag -n a:1 --to HERE/t --once --plot s3a://bucket/x.html",
    "metadata-diff s3a://bucket/x HERE",
    "metadata-diff HERE HERE/other --to file:x",
    "metadata-diff --history s3a:/bucket/x 2026-11-10 2026-11-15",
]


@pytest.mark.parametrize("line", LINES)
def test_a_path_that_a_job_cannot_use_ends_it_before_spark_starts(line, tmp_path, monkeypatch):
    def start(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("twinlog.spark.session.start", start)
    monkeypatch.chdir(tmp_path)
    save_header(tmp_path, ArchiveHeader("parquet", "brokers", chosen(())))
    (tmp_path / "other").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["pipeline", *line.replace("HERE", str(tmp_path)).split()])
    text = " ".join(done.stderr.split())
    assert done.exit_code in (1, 2), text
    assert re.search(r"(s3a?|gs):/{1,3}bucket/x|hdfs://host/x|'file:x'", text), text
    assert re.search("give|mount|write", text), text
    assert sorted(tmp_path.rglob("*")) == before
