"""Tables in a bucket of a real S3 server."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

from tests.spark.jobs.archive.tables.filling import Archive, Numbers

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.jobs.archive.parse.parser import parse_plan
from twinlog.spark.jobs.archive.tables.delta import storage_options
from twinlog.spark.jobs.archive.tables.expire import expire_table
from twinlog.spark.jobs.archive.tables.table import open_table


@pytest.fixture(scope="module")
def s3():
    pytest.importorskip("moto", reason="the S3 server of the tests: pip install 'moto[server]'")
    from tests.spark.lake.s3_server import s3_server

    with s3_server() as server:
        yield server


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_both_tables_of_a_parser_are_filled_in_a_bucket_and_a_second_run_is_refused(s3, kind):
    bucket = s3.new_bucket()
    lakes = s3.lake("lake/orders", bucket), s3.lake("lake/orders_unparsed", bucket)
    table = Archive(kind, *lakes, parse_plan("json=id bigint"))
    assert table.fill(15).unparsed == 3
    first, second = table.run(Numbers(20), "first"), table.run(Numbers(20), "second")

    def while_the_first_commits(parts):
        first.fill()
        return second.write(parts)

    with pytest.raises(BadArchive, match="another run"):
        table.run(Numbers(20), "second", write=while_the_first_commits).fill()
    assert table.numbers() == [n for n in range(20) if n % 5]
    assert sorted(row["queueOffset"] for row in table.second_rows()) == [0, 5, 10, 15]
    main, _ = table.tables()
    now = main.versions()[-1].made_ms
    assert expire_table(table.place, 3600, now).files == 0
    if kind == "iceberg":
        assert expire_table(table.place, 3600, now + 3_700_000).versions == 2
    assert len(table.numbers()) == 16


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_bucket_that_is_not_there_or_does_not_answer_is_named(s3, kind):
    gone = s3.lake("t", "no-such-bucket")
    with pytest.raises(SparkSourceError, match="no-such-bucket"):
        Archive(kind, gone).fill(5)
    silent = s3.lake("t", "some-bucket", **{"fs.s3a.endpoint": "http://127.0.0.1:1", "fs.s3a.attempts.maximum": "1"})
    assert storage_options(silent)["max_retries"] == "0", "attempts count for Delta too"
    told = r"some-bucket.*: Connection refused \(os error \d+\)\): " if kind == "delta" else "some-bucket"
    with pytest.raises(SparkSourceError, match=told):
        open_table(Archive(kind, silent).place)
