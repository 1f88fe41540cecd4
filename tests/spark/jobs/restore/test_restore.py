"""Restores by a real Spark into a real broker."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.spark.topics import BROKER, Topic
from tests.store import golden
from tests.store.store_at import draft, open_store, write_log

from twinlog.client import Outgoing
from twinlog.client.errors import ClientError
from twinlog.client.sync import Admin, Producer, PullConsumer
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.spark.jobs.restore import job as restoring
from twinlog.spark.jobs.restore.job import CannotRestore, RestoreJob, restore
from twinlog.spark.jobs.restore.map_table import read_map
from twinlog.wire.bodies import MessageQueue

pytestmark = pytest.mark.timeout(400)


def messages(topic, name, queue=0):
    """(offset, body) of a queue, as a consumer reads it."""
    place = MessageQueue(name, BROKER, queue)
    with PullConsumer(topic.name_server, "restore-tests", register=False) as consumer:
        end = consumer.max_offset(place)
        return [(message.queue_offset, message.body) for message in consumer.messages(place, 0, end)]


def commit(topic, group, offsets):
    topic.create_group(group)
    with PullConsumer(topic.name_server, group, register=False) as consumer:
        for queue, offset in offsets.items():
            consumer.commit(topic.queue(queue), offset)


def committed(name_server, group, name, queues):
    with PullConsumer(name_server, group, register=False) as consumer:
        return {queue: consumer.committed(MessageQueue(name, BROKER, queue)) for queue in queues}


@pytest.fixture(scope="module")
def archived(spark, broker, _producer, tmp_path_factory):
    """A topic of three queues, the last of them empty, and its archive."""
    topic = Topic(broker.namesrv_address, _producer, "ToRestore", 3)
    topic.send_numbers(600, queue=0)
    _producer.send(Outgoing(topic.name, b"600", tags="hot", keys="k1", properties={"mine": "1"}), queue=topic.queue(1))
    topic.send_numbers(9, queue=1, start=601)
    root = tmp_path_factory.mktemp("archives") / "archive"
    archive(spark, ArchiveJob(target=root, name_server=topic.name_server, topics=(topic.name,)))
    return topic, root


def job_for(archived, tmp_path, new="Restored", **more) -> RestoreJob:
    topic, root = archived
    source = {} if "stores" in more else {"archive": root}
    base = {"name_server": topic.name_server, "topics": (topic.name,), "renames": {topic.name: new}}
    return RestoreJob(**{**base, **source, "map_path": tmp_path / "map", **more})


def test_a_topic_comes_back_in_order_with_its_map_and_its_groups(spark, archived, tmp_path):
    topic, _ = archived
    with Admin(topic.name_server) as admin:
        admin.create_topic("Restored", queues=3)
    with Producer(topic.name_server, "others") as others:  # new offsets differ from the old ones
        others.send(Outgoing("Restored", b"before"), queue=MessageQueue("Restored", BROKER, 0))
    commit(topic, "behind", {0: 250, 1: 0})
    commit(topic, "done", {0: 600, 1: 10})
    groups = {"groups": ("behind", "done"), "group_offsets": topic.name_server}
    job = job_for(archived, tmp_path, from_offset=1, to_offset=599, **groups)
    done = restore(spark, job)
    assert (done.sent, done.present, done.copies, done.map_rows) == (607, 0, 0, 607)
    assert messages(topic, "Restored", 0) == [(0, b"before"), *((n, b"%d" % n) for n in range(1, 599))]
    assert [body for _, body in messages(topic, "Restored", 1)] == [b"%d" % n for n in range(601, 610)]
    rows = read_map(spark, tmp_path / "map").where("queueId = 1").orderBy("oldOffset").collect()
    assert [(row.brokerName, row.oldOffset, row.newTopic, row.newOffset) for row in rows] == [
        (BROKER, n, "Restored", n - 1) for n in range(1, 10)
    ]
    assert committed(topic.name_server, "behind", "Restored", (0, 1)) == {0: 250, 1: 0}
    assert committed(topic.name_server, "done", "Restored", (0, 1)) == {0: 599, 1: 9}
    # The same again sends nothing; more of it sends the rest, behind what is there.
    assert (restore(spark, job).sent, restore(spark, job_for(archived, tmp_path)).sent) == (0, 3)
    assert [body for _, body in messages(topic, "Restored", 1)][-1] == b"600"
    with PullConsumer(topic.name_server, "restore-tests", register=False) as consumer:
        last = MessageQueue("Restored", BROKER, 1)
        (hot,) = consumer.messages(last, 9, 10)
    assert (hot.tags, hot.keys, hot.properties["mine"]) == ("hot", ["k1"], "1")
    assert hot.properties["TWINLOG_ORIGIN"] == f"restore:ToRestore@{BROKER}@1@0"


def test_a_missing_topic_is_made_like_the_source_by_time_and_from_a_store_of_java(
    spark, archived, tmp_path, monkeypatch
):
    topic, _ = archived
    store = golden.unpack("normal", tmp_path / "broker-x")
    frame = spark.read.format("rocketmq_store").load(str(store)).where("topic = 'TopicA' and sysFlag & 4 = 0")
    rows = frame.orderBy("commitLogOffset").selectExpr("queueId", "unix_millis(storeTimestamp) ms", "body").collect()
    middle = rows[len(rows) // 2].ms
    options = {"topics": ("TopicA",), "renames": {"TopicA": "FromJava"}, "stores": (str(store),), "from_ms": middle}
    offsets = spark.read.format("rocketmq_store").option("kind", "consumer_offsets").load(str(store)).collect()
    group = next(row.consumerGroup for row in offsets if row.topic == "TopicA")
    job = job_for(archived, tmp_path, groups=(group,), group_offsets=str(store), map_path=None, **options)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = restore(spark, job)
    assert (done.map_path, sorted(tmp_path.iterdir())) == (None, before), "no map is left where none was asked for"
    late = [row for row in rows if row.ms >= middle]
    assert (done.sent, done.empty) == (sum(1 for row in late if row.body), sum(1 for row in late if not row.body))
    assert done.empty == 1  # Java's tools put it there; brokers refuse such messages
    (config,) = [
        row
        for row in spark.read.format("rocketmq_store").option("kind", "topic_configs").load(str(store)).collect()
        if row.topic == "TopicA"
    ]
    with PullConsumer(topic.name_server, "restore-tests", register=False) as consumer:
        assert len(consumer.queues("FromJava")) == config.writeQueueNums
    assert {place.group for place in done.groups} == {group}
    for queue in {row.queueId for row in rows}:
        wanted = [row.body for row in late if row.queueId == queue and row.body]
        assert [body for _, body in messages(topic, "FromJava", queue)] == wanted


def test_what_cannot_be_restored_is_said(spark, archived, tmp_path):
    topic, _ = archived
    with Admin(topic.name_server) as admin:
        admin.create_topic("Narrow", queues=1)
    for more, told in (
        ({"topics": ("Nothing",), "renames": {}}, "no message of topic Nothing in"),
        ({"from_offset": 10_000}, "no message of ToRestore is within"),
        ({"new": "Narrow"}, "has 1 writable queues on broker-dev, the source has 2"),
        ({"name_server": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"archive": tmp_path / "none"}, "there is no archive"),
    ):
        with pytest.raises(Exception, match=told) as raised:
            restore(spark, job_for(archived, tmp_path, **more))
        assert "Traceback" not in str(raised.value)
    options = {"groups": ("nobody",), "group_offsets": topic.name_server}
    with pytest.raises(BadOption, match="group nobody has no offset for ToRestore"):
        restore(spark, job_for(archived, tmp_path, new="Wide", **options))
    assert messages(topic, "Wide", 0) == [], "it is said before anything is sent"


def test_damage_in_a_topic_that_is_not_restored_is_not_an_error(spark, archived, tmp_path):
    topic, _ = archived
    (tmp_path / "broker-x" / "store" / "config").mkdir(parents=True)
    with open_store(tmp_path / "broker-x") as store:
        places = [store.append(draft(number, f"Damaged{'ABC'[number % 3]}")) for number in range(30)]
        store.dispatch_pending()
    write_log(tmp_path / "broker-x", places[14].physical_offset + 4, b"\xff")  # a record of DamagedC
    given = {"renames": {}, "stores": (str(tmp_path / "broker-x" / "store"),)}
    done = restore(spark, job_for(archived, tmp_path, topics=("DamagedA", "DamagedB"), **given))
    assert (done.sent, done.gaps) == (20, 0)
    damaged = {**given, "topics": ("DamagedB", "DamagedC")}
    with pytest.raises(Exception, match=r"topic DamagedC queue 0.*--option failOnDataLoss=false"):
        restore(spark, job_for(archived, tmp_path, **damaged))
    # The option that the error names works, and the summary tells what is missing.
    done = restore(spark, job_for(archived, tmp_path, **damaged, options={"failOnDataLoss": "false"}))
    assert (done.sent, done.present, done.gaps) == (9, 10, 1)
    assert [body for _, body in messages(topic, "DamagedC", 0)] == [b"body %d" % n for n in range(2, 30, 3) if n != 14]


def test_what_is_missing_in_the_target_is_noticed_although_other_messages_were_restored_before(
    spark, make_topic, tmp_path, monkeypatch
):
    topic, root = make_topic(1), tmp_path / "archive"
    topic.send_numbers(30)
    time.sleep(0.01)  # store times have milliseconds
    topic.send_numbers(5, start=30)
    archive(spark, ArchiveJob(target=root, name_server=topic.name_server, topics=(topic.name,)))
    late = read_archive(spark, root).where("queueOffset >= 30")
    middle = late.selectExpr("unix_millis(min(storeTimestamp)) ms").first().ms
    new = f"{topic.name}Again"
    assert restore(spark, job_for((topic, root), tmp_path, new=new, to_ms=middle)).sent == 30
    monkeypatch.setattr(restoring, "_send", lambda *arguments: {})  # acknowledged, and lost by the broker
    with pytest.raises(CannotRestore, match="queue 0: 5 messages were to be restored, the target has 0"):
        restore(spark, job_for((topic, root), tmp_path, new=new, from_ms=middle))


def test_an_archive_without_all_columns_is_restored_with_a_warning(spark, make_topic, tmp_path, caplog):
    topic, root = make_topic(1), tmp_path / "archive"
    topic.send_numbers(3)
    columns = ("body",)
    archive(spark, ArchiveJob(target=root, name_server=topic.name_server, topics=(topic.name,), columns=columns))
    assert restore(spark, job_for((topic, root), tmp_path, new=f"{topic.name}Bare")).sent == 3
    assert "lacks columns of a message" in caplog.text and "properties" in caplog.text


def test_a_restore_killed_half_way_and_repeated_has_no_copies(spark, make_topic, tmp_path):
    topic, root, count = make_topic(1), tmp_path / "archive", 8000
    topic.send_numbers(count)
    archive(spark, ArchiveJob(target=root, name_server=topic.name_server, topics=(topic.name,)))
    command = [sys.executable, "-m", "twinlog.cli.main", "pipeline", "restore", "--archive", str(root)]
    command += ["-n", topic.name_server, "-t", topic.name, "--rename", f"{topic.name}=Killed", "--json"]
    command += ["--map", str(tmp_path / "map"), "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
    command += ["--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]
    # One message per request, so that there is a middle.
    run = subprocess.Popen([*command, "--batch", "1"], start_new_session=True, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 120
    with Admin(topic.name_server) as admin:
        while (there := sent(admin, "Killed")) < 40:
            assert run.poll() is None
            assert time.monotonic() < limit, there
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        assert 40 <= sent(admin, "Killed") < count
    done = restore(spark, job_for((topic, root), tmp_path, new="Killed"))
    assert (done.map_rows, done.copies, done.sent + done.present) == (count, 0, count)
    assert done.present >= 40
    assert [body for _, body in messages(topic, "Killed", 0)] == [b"%d" % n for n in range(count)]


def sent(admin, name):
    try:
        return sum(offset.max_offset for offset in admin.topic_stats(name).values())
    except ClientError:
        return 0
