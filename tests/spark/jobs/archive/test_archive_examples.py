"""The notebook and the declarative pipeline of examples/ do what they say."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

pytestmark = pytest.mark.timeout(400)
EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_notebook_runs_from_top_to_bottom(spark, broker, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    monkeypatch.setenv("ARCHIVE", str(tmp_path / "archive"))
    notebook = json.loads((EXAMPLES / "archive.ipynb").read_text())
    assert (notebook["nbformat"], len({cell["id"] for cell in notebook["cells"]})) == (4, len(notebook["cells"]))
    names: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    assert names["summary"].total.rows == 30
    assert [(row.tags, row.orders) for row in names["by_kind"].collect()] == [
        ("coffee", 10),
        ("tea", 10),
        ("water", 10),
    ]
    assert names["found"].count() == 1
    assert "30 messages in" in capsys.readouterr().out


@pytest.mark.slow
def test_the_declarative_pipeline_brings_its_tables_up_to_date(broker, make_topic, tmp_path):
    pytest.importorskip("grpc", reason="pip install 'twinlog[connect]'")
    pytest.importorskip("yaml", reason="pip install 'twinlog[connect]'")
    topic = make_topic(name="Pipelined")
    topic.send_numbers(50)
    project = shutil.copytree(EXAMPLES / "archive_pipeline", tmp_path / "project")
    spec = (project / "spark-pipeline.yml").read_text()
    for old, new in (
        ("127.0.0.1:9876", broker.namesrv_address),
        ("rocketmq.pattern: .*", "rocketmq.pattern: Pipelined"),
        ("/tmp/rocketmq-archive", str(tmp_path / "state")),
    ):
        assert old in spec
        spec = spec.replace(old, new)
    (project / "spark-pipeline.yml").write_text(spec)
    script = Path(sys.executable).parent / "spark-pipelines"
    conf = ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=1")
    command = [str(script), "run", *(word for one in conf for word in ("--conf", one))]
    path = os.pathsep.join((str(script.parent), os.environ["PATH"]))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_SUBMIT_OPTS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # short runs: compile little
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    tables = project / "spark-warehouse"
    messages = ds.dataset(tables / "messages", format="parquet", partitioning="hive").to_table()
    assert sorted(int(body.as_py()) for body in messages["body"]) == list(range(50))
    (hour,) = ds.dataset(tables / "messages_per_hour", format="parquet").to_table().to_pylist()
    assert (hour["topic"], hour["messages"]) == ("Pipelined", 50)
