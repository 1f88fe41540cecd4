"""Jobs of a real Spark on a real S3 server; without Hadoop's connector, with the settings that it has."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.spark.jobs.audit.audit_stores import make_master
from tests.spark.lake.archives import live, plain
from tests.spark.topics import numbers

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client.sync import Admin, PullConsumer
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.compact import CompactJob, compact
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.archive.layout import BadArchive
from twinlog.spark.jobs.audit.job import AuditJob, audit
from twinlog.spark.jobs.audit.pairs import pairs_of
from twinlog.spark.jobs.lag.charts import write_plot
from twinlog.spark.jobs.lag.job import LagJob, lag
from twinlog.spark.jobs.restore.job import RestoreJob, restore
from twinlog.spark.jobs.restore.map_table import read_map
from twinlog.spark.jobs.sync.job import sync
from twinlog.spark.jobs.sync.sync_plan import SyncJob
from twinlog.spark.jobs.sync.tables.history import metadata_at
from twinlog.spark.jobs.sync.tables.lake_table import AnothersHistory
from twinlog.spark.lake.spark_tables import read_table, table_names
from twinlog.spark.session import register

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
    restored = RestoreJob(
        name_server=topic.name_server,
        topics=(topic.name,),
        archive=target,
        renames={topic.name: f"{topic.name}Back"},
        map_path=f"{target}-map",
    )
    first = restore(session, restored)
    again = restore(session, restored)
    assert (first.sent, first.map_rows, again.sent, again.present) == (35, 35, 0, 35)
    assert again.map_path == f"{lake.root}-map"
    rows = read_map(session, f"{target}-map").where("queueId = 1").orderBy("oldOffset").collect()
    assert [(row.oldOffset, row.newOffset, row.newTopic) for row in rows] == [
        (n, n, f"{topic.name}Back") for n in range(10)
    ]


def test_tables_of_audits_and_samples_and_the_start_of_a_stream_are_kept_in_a_bucket(session, s3, make_topic, tmp_path):
    make_master(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    lake = s3.lake()
    pairs = pairs_of([str(tmp_path / name / "store") for name in ("a", "b")])
    for _ in range(2):
        assert audit(session, AuditJob(pairs=pairs, to=f"{lake.root}/audits")).status == 0
    audits = s3.lake("audits", lake.root.authority)
    kept = read_table(session, audits, table_names(audits))
    assert [(row.kind, row.what) for row in kept.select("kind", "what").collect()] == [("result", "equal")] * 2

    topic = make_topic(queues=1)
    topic.send_numbers(5)
    topic.create_group("slow")
    with PullConsumer(topic.name_server, "slow", register=False) as consumer:
        consumer.commit(topic.queue(0), 2)
    cluster = ClusterOptions(name_servers=(topic.name_server,))
    job = LagJob(cluster=cluster, to=f"{lake.root}/lag", groups=("slow",))
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
    for _ in range(2):  # the second one replaces the first
        assert lag(session, job, clock=lambda: noon, sleep=lambda _: None).samples == 1
    assert write_plot(session, f"{lake.root}/lag", str(tmp_path / "lag.html")) == 1
    (sample,) = [entry.name for entry in lake.list("lag/")]
    assert sample.endswith("/slot=20261115T120000/sample.parquet")
    with pytest.raises(BadOption, match="is not a table of samples: take some first"):
        write_plot(session, f"{lake.root}/none", str(tmp_path / "lag.html"))

    register(session)
    options = {"nameServer": topic.name_server, "topic": topic.name, "startingOffsets": "latest"}
    stream = session.readStream.format("rocketmq").options(**options, initialOffsetsLocation=f"{lake.root}/start")
    writer = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert json.loads(lake.read("start/initial-offsets.json") or b"") == {topic.key(): 5}


def test_the_history_of_a_synchronisation_is_kept_in_a_bucket(session, s3, tmp_path):
    lake = s3.lake("history")
    with EmbeddedBroker(tmp_path / "home", {"brokerName": "broker-s"}) as broker:
        with Admin(broker.namesrv_address) as admin:
            admin.create_topic("Orders", queues=2)
        job = SyncJob(to=str(tmp_path / "to"), addresses=(broker.broker_address,), once=True, history=str(lake.root))
        assert sync(session, job).failed == ()
        rows = metadata_at(session, str(lake.root), datetime.now(UTC), kind="topics", key="Orders").collect()
        assert [json.loads(row.value)["readQueueNums"] for row in rows] == [2]
        with pytest.raises(AnothersHistory, match=r"history of the replicas in .*/to on .*give another --history"):
            sync(session, replace(job, to=str(tmp_path / "other")))
