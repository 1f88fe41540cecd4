"""Which build of Delta a session gets, and what a table's log says was added; the table itself is in interop."""

import json

import pytest

pytest.importorskip("pyspark")

from typer.testing import CliRunner

from twinlog.cli.main import app
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.delta import DELTA_BUILDS, delta_added, delta_conf, delta_version
from twinlog.spark.jobs.archive.layout import TopicTotals

PACKAGES = "spark.jars.packages"


def test_a_session_gets_the_build_for_its_spark_beside_the_users_packages():
    conf = delta_conf("4.2.1", {PACKAGES: "org.example:other:1", "spark.executor.memory": "2g"})
    assert conf[PACKAGES] == f"org.example:other:1,{DELTA_BUILDS['4.2']}"
    assert conf["spark.executor.memory"] == "2g"
    assert "Delta" in conf["spark.sql.extensions"]


def test_a_spark_without_a_build_is_refused_with_ways_out():
    with pytest.raises(BadOption, match=r"Spark 4\.3\.0: pip install 'twinlog\[delta\]'"):
        delta_conf("4.3.0", {PACKAGES: "org.example:other:1"})


@pytest.mark.parametrize("own", [{PACKAGES: "io.delta:delta-spark_4.3_2.13:9"}, {"spark.jars": "delta-spark.jar"}])
def test_a_build_of_the_users_own_is_taken_as_it_is(own):
    conf = delta_conf("4.3.0", own)
    assert {key: conf.get(key) for key in (PACKAGES, "spark.jars")} == {PACKAGES: None, "spark.jars": None} | own


def test_the_command_refuses_a_spark_without_a_build_and_writes_nothing(monkeypatch, tmp_path, make_topic):
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    topic = make_topic()
    line = f"pipeline archive {tmp_path / 'lake'} -n {topic.name_server} -t {topic.name} --format delta"
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 1
    assert "no build of Delta is known for Spark 4.3.0" in " ".join(done.stderr.split())
    assert not (tmp_path / "lake").exists()


def test_what_was_added_is_read_from_the_tables_log(tmp_path):
    log = tmp_path / "_delta_log"
    log.mkdir()
    assert delta_version(tmp_path) == -1
    for version, rows in enumerate((5, 7, 9)):
        add = {"partitionValues": {"topic": "T"}, "size": 100, "stats": json.dumps({"numRecords": rows})}
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": {}}) + "\n" + json.dumps({"add": add}))
    (log / "_last_checkpoint.json").write_text("{}")
    assert delta_version(tmp_path) == 2
    assert delta_added(tmp_path, 0) == {"T": TopicTotals(rows=16, files=2, bytes=200)}
