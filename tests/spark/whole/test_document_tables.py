"""The tables of docs/spark.md name what the code knows, all of it and nothing else; their examples run."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from tests.spark.documented import PAGE, blocks, commands
from tests.store.store_at import fill, open_store

from twinlog.cli.pipeline.app import app
from twinlog.spark.jobs.audit.findings import DIFFERENCES
from twinlog.spark.reading.brokers import options as reads
from twinlog.spark.reading.stores import options as stores
from twinlog.spark.schema import LIVE_COLUMNS, METADATA_KINDS
from twinlog.spark.writing import options as writes
from twinlog.spark.writing.columns import WRITE_COLUMNS

HERE = Path(__file__).parent
# The tables of the page by the headings above them, and the tests that run examples of each as they stand there.
JOBS, TABLES = "test_document_jobs.py", "test_document_tables.py"
SYNCHRONISED = (JOBS, "test_a_synchronisation_has_its_status_its_ticks_its_history_and_its_samples_of_lag")
ARCHIVED = (JOBS, "test_archives_are_filled_compacted_parsed_and_restored")
IN_A_BUCKET = (JOBS, "test_an_archive_in_a_bucket_is_filled_compacted_read_and_restored")
READ_AND_WRITTEN = (TABLES, "test_the_examples_of_reads_writes_and_stores_run")
EXAMPLES = [
    ("# Spark", SYNCHRONISED),  # a replica or the pipeline
    ('## Topics: `format("rocketmq")`', READ_AND_WRITTEN),
    ("### Writing", READ_AND_WRITTEN),  # columns
    ("### Writing", READ_AND_WRITTEN),  # options
    ('## Stores: `format("rocketmq_store")`', READ_AND_WRITTEN),
    ("## Metadata as tables", ("test_metadata_tables.py", "test_which_groups_lag_on_which_replica_is_one_statement")),
    ("#### Columns from bodies: `--parse`", ARCHIVED),
    ("## Audit: is a replica its master's twin?", (JOBS, "test_an_audit_is_kept_and_differences_are_found")),
    ("## Replicas of many masters: `twinlog pipeline sync`", SYNCHRONISED),
    ("## On object stores and HDFS", IN_A_BUCKET),  # what may be where
    ("## On object stores and HDFS", IN_A_BUCKET),  # settings
    ("## On object stores and HDFS", IN_A_BUCKET),  # what readers see
]
OF_ORDERS = '.options(nameServer="127.0.0.1:9876", topic="Orders").load().count()'
OTHERS_OF_READS = {"startingOffsetsByTimestamp", "endingOffsetsByTimestamp"}  # named in the row of the times


def tables(heading: str) -> list[list[list[str]]]:
    """The rows of each table below a heading, up to the next heading; a row is its cells."""
    lines = PAGE.read_text().splitlines()
    begin = lines.index(heading) + 1
    found: list[list[list[str]]] = []
    for before, line in pairwise(lines[begin:]):
        if line.startswith("#") and not line.startswith("####"):
            break
        if line.startswith("|---"):
            found.append([])
        elif line.startswith("|") and found and before.startswith("|"):
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    return found


def named(rows: list[list[str]]) -> set[str]:
    """The names in the first cells; `.certFile` stands for the one before it with another end."""
    names: set[str] = set()
    for row in rows:
        last = ""
        for name in re.findall(r"`([^`]+)`", row[0]):
            last = last.rpartition(".")[0] + name if name.startswith(".") else name
            names.add(last)
    return names


def test_every_table_has_an_example_that_a_test_runs():
    heading, found = "", []
    for line in re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL).splitlines():
        heading = line if re.match("#+ ", line) else heading
        found += [heading] if line.startswith("|---") else []
    assert found == [heading for heading, _ in EXAMPLES]
    for _, (file, name) in EXAMPLES:
        assert f"\ndef {name}(" in (HERE / file).read_text()


def test_every_command_of_the_page_has_the_options_that_it_is_given():
    pipeline = typer.main.get_command(app)
    found = commands("# Spark")
    for name, *words in found:
        pipeline.get_command(None, name).make_context(name, words)  # type: ignore[attr-defined]
    assert len(found) > 30


def test_every_option_of_a_read_is_in_its_table():
    (rows,) = tables('## Topics: `format("rocketmq")`')
    known = {*reads._BOTH, *reads._BATCH, *reads._STREAM}
    assert named(rows) | OTHERS_OF_READS == known


def test_every_column_and_option_of_a_write_is_in_its_table():
    columns, options = tables("### Writing")
    assert named(columns) == set(WRITE_COLUMNS)
    shared = {name for name in writes._BOTH if name.startswith(("rocketmq.", "access", "secret", "fetchOffset."))}
    assert named(options) == {*writes._BOTH, *writes._BATCH} - shared


def test_every_option_of_a_store_is_in_its_table():
    (rows,) = tables('## Stores: `format("rocketmq_store")`')
    known = {*stores._KNOWN, *stores._STREAM, *stores.SELECTING_IN_BATCH} - {"path", "paths"}
    assert named(rows) == known


def test_every_kind_of_metadata_is_in_its_table_with_columns_that_it_has():
    (rows,) = tables("## Metadata as tables")
    assert named(rows) == set(METADATA_KINDS)
    for kind, text in rows:
        names = {name for part in re.findall(r"`([^`]+)`", text) for name in part.split(", ")}
        assert names <= set(LIVE_COLUMNS[kind.strip("`")]), kind


def test_every_kind_of_finding_is_in_its_table():
    (rows,) = tables("## Audit: is a replica its master's twin?")
    assert named(rows) == {*DIFFERENCES, "lag", "note", "error"}


def test_the_options_of_sync_in_its_table_exist():
    pipeline = typer.main.get_command(app)
    known = {word for one in pipeline.get_command(None, "sync").params for word in one.opts}  # type: ignore[attr-defined]
    for rows in tables("## Replicas of many masters: `twinlog pipeline sync`"):
        assert {name.split(" ")[0] for name in named(rows) if name.startswith("-")} <= known


@pytest.mark.timeout(300)
def test_the_examples_of_reads_writes_and_stores_run(spark, broker, make_topic, tmp_path):
    topic = make_topic(queues=2, name="OrdersOut")
    scope = {"spark": spark}
    (writing,) = blocks("### Writing", "python")
    for block in writing:  # the second one is idempotent
        exec(block.replace("127.0.0.1:9876", broker.namesrv_address), scope)
    exec(writing[1].replace("127.0.0.1:9876", broker.namesrv_address), scope)
    assert len(topic.read()) == 4, "two rows of a plain write, two of one that was made twice"
    ((view,),) = blocks('## Topics: `format("rocketmq")`', "sql")
    spark.sql(view.replace("127.0.0.1:9876", broker.namesrv_address).replace("'Orders'", "'OrdersOut'").strip("; \n"))
    assert spark.sql("select count(*) n from orders").first().n == 4
    first, columns, stream, behind = blocks("# Spark", "python")[0][:4]
    places = {"127.0.0.1:9876": broker.namesrv_address, '"Orders"': '"OrdersOut"', "/data/": f"{tmp_path}/"}
    for block in (first, columns.replace("...", OF_ORDERS), stream, "query.awaitTermination(120)", behind):
        for old, new in places.items():
            block = block.replace(old, new)
        exec(block, scope)
    assert scope["orders"].count() == spark.read.parquet(f"{tmp_path}/orders").count() == 4
    with open_store(tmp_path / "broker-a") as store:
        fill(store, 10)
    (tmp_path / "broker-a" / "store" / "config").mkdir(exist_ok=True)
    ((reading,),) = blocks('## Stores: `format("rocketmq_store")`', "python")
    exec(reading.replace("/data/", f"{tmp_path}/"), scope)
    assert (scope["messages"].count(), scope["offsets"].count()) == (10, 0)
