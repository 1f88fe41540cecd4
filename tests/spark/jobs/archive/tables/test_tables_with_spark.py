"""Table archives of a real broker, made by a real Spark, and read back by it, deltalake, pyiceberg and DuckDB."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

import duckdb
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from tests.spark.jobs.commands import run

from twinlog.cli.pipeline.app import app
from twinlog.client import Outgoing
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.compact import compact
from twinlog.spark.jobs.archive.compaction_plan import CompactJob
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.layout import BadArchive

pytestmark = pytest.mark.timeout(400)


def send(topic, numbers, queue=0) -> None:
    """Orders as JSON; each tenth is something else."""
    bodies = {n: json.dumps({"id": n, "who": f"w{n}"}).encode() if n % 10 else b"not an order" for n in numbers}
    for n in numbers:
        topic._producer.send(Outgoing(topic.name, bodies[n], keys=f"k{n}"), queue=topic.queue(queue))


def arrow_table(kind: str, root):
    """The table as its own library reads it."""
    if kind == "delta":
        return DeltaTable(root).to_pyarrow_table()
    return StaticTable.from_metadata(str(root)).scan().to_arrow()


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_topic_is_archived_parsed_compacted_and_read_by_everybody(spark, make_topic, tmp_path, kind, capfd):
    topic, root = make_topic(), tmp_path / "lake"
    send(topic, range(20))
    send(topic, range(20, 30), queue=1)
    plain = {"target": root, "name_server": topic.name_server, "topics": (topic.name,), "format": kind}
    job = ArchiveJob(**plain, rows_max=12, parse="json=id bigint")
    told = []
    done = archive(spark, job, told.append)
    assert (done.total.rows, done.unparsed, done.batches) == (27, 3, 3)
    assert (told[-1].done, told[-1].total) == (30, 30)
    send(topic, range(30, 36))
    wider = ArchiveJob(**plain, parse="json=id bigint, who string")
    more = archive(spark, wider)
    assert (more.total.rows, more.unparsed) == (5, 1)
    assert more.notes == ("the table got the columns who: older rows have null there",)
    wanted = [n for n in range(36) if n % 10]
    table = read_archive(spark, root)
    assert sorted(row.id for row in table.select("id").collect()) == wanted
    (row,) = table.where(f"topic = '{topic.name}' and id = 33").collect()
    assert (row.who, row.keys, row.day, row.properties["KEYS"]) == ("w33", "k33", row.storeTimestamp.date(), "k33")
    assert table.columns[-3:] == ["id", "who", "day"]
    bad = read_archive(spark, f"{root}_unparsed")
    assert {(bytes(row.body), row.parseError.split(":")[0]) for row in bad.collect()} == {
        (b"not an order", "JSON is malformed")
    }
    assert bad.count() == 4
    before = files_of(capfd, root)
    compacted = compact(spark, CompactJob(target=root, before="2999-01-01"))
    assert compacted.files_before > compacted.files_after == 1
    assert sorted(row.id for row in read_archive(spark, root).collect()) == wanted
    # Each library of its own, and DuckDB through Arrow.
    found = arrow_table(kind, root)
    assert sorted(found["id"].to_pylist()) == wanted
    assert duckdb.sql("select count(*), max(who) from found").fetchall() == [(32, "w35")]
    # The past: as it was after the first batch.
    first = next(one for one in before if one["batch"] == 0)
    assert read_archive(spark, root, version=first["version"]).count() == first["rows_added"]
    send(topic, range(36, 38))
    assert archive(spark, wider).total.rows == 2  # after a compaction the position is still known
    assert archive(spark, wider).total.rows == 0


def test_the_examples_of_the_manual_run(spark, make_topic, tmp_path):
    """The blocks of docs/spark.md about tables, with other paths and another address."""
    topic = make_topic(name="Orders")
    send(topic, range(5))
    manual = Path(__file__).parents[5].joinpath("docs", "spark.md").read_text()
    section = manual[manual.index("### Tables: Iceberg and Delta") : manual.index("## Restore: back to a broker")]
    places = {"/data/lake": str(tmp_path / "lake"), "/data/delta": str(tmp_path / "delta")}
    for kind, place in zip(("iceberg", "delta"), places.values(), strict=True):
        archive(spark, ArchiveJob(target=place, name_server=topic.name_server, topics=("Orders",), format=kind))
    blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    names = {"spark": spark, "read_archive": read_archive}
    for _, code in (block for block in blocks if block[0] == "python"):
        for old, new in places.items():
            code = code.replace(old, new)
        exec(code, names)
    assert names["orders"].num_rows == 5
    lines = [line.partition("#")[0] for kind, text in blocks if not kind for line in text.splitlines()]
    pipeline = typer.main.get_command(app)
    for _, _, command, *words in map(shlex.split, lines):
        found = pipeline.get_command(None, command)
        found.make_context(command, list(words))  # all its options exist
        if command in ("versions", "expire"):
            found.main([places.get(word, word) for word in words], standalone_mode=False)
    assert len(lines) == 7


def files_of(capfd, root) -> list[dict]:
    return json.loads(run(capfd, "versions", str(root), "--json").stdout)


def test_what_cannot_be_done_is_refused_and_writes_nothing(spark, make_topic, tmp_path):
    topic = make_topic(queues=1)
    send(topic, range(3))
    plain = {"name_server": topic.name_server, "topics": (topic.name,)}
    for more, told in (
        ({"format": "icberg"}, "did you mean 'iceberg'"),
        ({"format": "parquet", "parse": "json=id bigint"}, "give --format iceberg or --format delta"),
        ({"format": "delta", "catalog": {"type": "rest"}}, "are for --format iceberg"),
        ({"format": "iceberg", "table": "a.b"}, "give --catalog too"),
        ({"format": "delta", "parse_into": "x"}, "need --parse"),
        ({"format": "delta", "parse": "json=id bigint", "unparsed": tmp_path / "lake"}, "a directory of their own"),
        ({"format": "delta", "parse": "json=id bigint", "unparsed": tmp_path / "lake" / "bad"}, "beside the other"),
        ({"format": "delta", "parse": "json=id bigint", "unparsed": tmp_path}, "beside the other"),
        ({"format": "delta", "target": "hdfs://h/lake"}, "on S3 and in local directories only"),
    ):
        with pytest.raises(BadOption, match=told):
            archive(spark, ArchiveJob(**{"target": tmp_path / "lake", **plain, **more}))
    assert not (tmp_path / "lake").exists()
    archive(spark, ArchiveJob(target=tmp_path / "lake", **plain, format="delta"))
    with pytest.raises(BadArchive, match="is a delta archive: give --format delta"):
        archive(spark, ArchiveJob(target=tmp_path / "lake", **plain, format="iceberg"))
