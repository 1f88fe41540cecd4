"""Jobs of a real Spark on a real S3 server; without Hadoop's connector, with the settings that it has."""

import pytest
from tests.spark.lake.archives import live, plain
from tests.spark.topics import numbers

from twinlog.spark.jobs.archive.compact import CompactJob, compact
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.layout import BadArchive

pytestmark = pytest.mark.timeout(200)
KEY = ["topic", "brokerName", "queueId", "queueOffset"]


@pytest.fixture
def session(spark, s3):
    """The session, with the settings of the server as a user gives them."""
    for name, value in s3.settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in s3.settings:
        spark.conf.unset(name)


def bodies(frame) -> list[str]:
    return sorted((row.body.decode() for row in frame.select("body").collect()), key=int)


def test_an_archive_in_a_bucket_is_filled_compacted_and_read(session, s3, make_topic):
    topic, lake = make_topic(), s3.lake("archives/orders")
    topic.send_numbers(25, queue=0)
    topic.send_numbers(5, queue=1, start=25)
    target, told = str(lake.root).replace("s3a:", "s3:"), []
    job = ArchiveJob(target=target, name_server=topic.name_server, topics=(topic.name,), rows_max=12)
    done = archive(session, job, told.append)
    assert (done.target, done.total.rows, done.batches) == (str(lake.root), 30, 3)
    assert (told[-1].done, told[-1].total) == (30, 30)
    topic.send_numbers(5, queue=1, start=30)
    assert archive(session, job).total.rows == 5
    table = read_archive(session, target)
    assert bodies(table) == numbers(35)
    (row,) = table.where(f"topic = '{topic.name}' and queueId = 1 and queueOffset = 9").collect()
    assert (row.body, row.brokerName, row.day) == (b"34", "broker-dev", row.storeTimestamp.date())
    assert row.properties["UNIQ_KEY"] == row.msgId
    packed = compact(session, CompactJob(target=target, before="2999-01-01"))
    assert (packed.files_after, packed.partitions) == (1, 1)
    assert bodies(read_archive(session, target)) == numbers(35)
    assert live(lake) == plain(lake)
    with pytest.raises(BadArchive, match="it also has commitLogOffset"):
        archive(session, ArchiveJob(target=target, name_server=topic.name_server, columns=("body",)))
