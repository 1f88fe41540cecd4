"""Metadata as tables: of live brokers, masters and replicas, and of their stores; topics as views."""

import time

import pytest
from pyspark.sql.datasource import InputPartition
from tests.spark.documented import blocks
from tests.spark.second_broker import SecondBroker

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer, PullConsumer
from twinlog.metadata.errors import BrokenFile
from twinlog.metadata.timer_check import TimerProgress, encode_file
from twinlog.spark.errors import BadOption, BadRecord, CannotRead
from twinlog.spark.live_broker import LiveBroker
from twinlog.spark.reading.brokers.metadata_reader import MetadataReader, metadata_options, read_metadata
from twinlog.spark.reading.stores.batch_reader import TableReader
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.remoting import Response
from twinlog.spark.schema import LIVE_COLUMNS, METADATA_KINDS, TABLE_COLUMNS
from twinlog.spark.session import register_views
from twinlog.spark.source import RocketmqSource
from twinlog.wire.bodies import MessageQueue, SubscriptionGroupConfig

NAME, TOPIC, GROUP = "broker-dev", "Orders", "billing"
QUICK = {"slaveMetadataSyncFirstDelay": "0", "slaveMetadataSyncInterval": "100"}


class Pair:
    """A master, and a replica that can be stopped."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.master = EmbeddedBroker(directory / "master", {"haListenPort": "0", "timerWheelEnable": "true"})

    def __enter__(self):
        self.master.start()
        self.name_server = self.master.namesrv_address
        role = {"brokerName": NAME, "brokerId": "1", "brokerRole": "SLAVE"}
        self.replica = SecondBroker(self.name_server, self.directory / "replica", **role, **QUICK).start()
        with Admin(self.name_server) as admin, Producer(self.name_server, "PG") as producer:
            admin.create_topic(TOPIC, queues=2)
            admin.save_group(self.master.broker_address, SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3))
            for n in range(10):
                producer.send(Outgoing(TOPIC, b"%d" % n), queue=MessageQueue(TOPIC, NAME, n % 2))
        self.commit(2)
        return self

    def __exit__(self, *_):
        self.replica.stop()
        self.master.stop()

    def commit(self, offset):
        with PullConsumer(self.name_server, GROUP, register=False) as consumer:
            for queue in (0, 1):
                consumer.commit(MessageQueue(TOPIC, NAME, queue), offset)

    def read(self, kind, **more):
        given = {"nameServer": self.name_server, "kind": kind, **more}
        return rows(MetadataReader(metadata_options(given), LIVE_COLUMNS[kind]))

    def until(self, has_followed, kind="consumer_offsets"):
        limit = time.monotonic() + 60
        while not has_followed([row for row in self.read(kind) if row["brokerId"] == 1]):
            assert time.monotonic() < limit, self.read(kind)
            time.sleep(0.1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Pair(tmp_path_factory.mktemp("pair")) as running:
        running.until(lambda found: [row["offset"] for row in found if row["topic"] == TOPIC] == [2, 2])
        running.until(lambda found: [row["maxOffset"] for row in found if row["topic"] == TOPIC] == [5, 5])
        running.until(lambda found: any(row["consumerGroup"] == GROUP for row in found), "subscription_groups")
        yield running


def rows(reader):
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_each_broker_gives_its_own_rows_and_a_role_can_be_chosen(pair):
    found = [row for row in pair.read("consumer_offsets") if row["topic"] == TOPIC]
    assert [(row["brokerId"], row["queueId"], row["offset"], row["minOffset"], row["maxOffset"]) for row in found] == [
        (0, 0, 2, 0, 5),
        (0, 1, 2, 0, 5),
        (1, 0, 2, 0, 5),
        (1, 1, 2, 0, 5),
    ]
    assert {(row["brokerName"], row["consumerGroup"]) for row in found} == {(NAME, GROUP)}
    assert {row["address"] for row in found} == {pair.master.broker_address, pair.replica.address}
    for role, number in (("master", 0), ("slave", 1)):
        assert {row["brokerId"] for row in pair.read("topic_configs", readFrom=role)} == {number}


def test_groups_topics_delays_and_timers_are_tables_with_all_columns(pair):
    for kind in METADATA_KINDS:
        for row in pair.read(kind):
            assert list(row) == list(LIVE_COLUMNS[kind])
    groups = {(row["brokerId"], row["consumerGroup"]): row for row in pair.read("subscription_groups")}
    assert [groups[number, GROUP]["retryMaxTimes"] for number in (0, 1)] == [3, 3]
    topics = {row["topic"]: row for row in pair.read("topic_configs", readFrom="slave")}
    assert (topics[TOPIC]["readQueueNums"], topics[TOPIC]["perm"]) == (2, 6)
    with Producer(pair.name_server, "PG") as producer:
        producer.send(Outgoing(TOPIC, b"later", delay_level=1))
    limit = time.monotonic() + 60
    while not [row for row in pair.read("delay_offsets", readFrom="master") if (row["level"], row["offset"]) == (1, 1)]:
        assert time.monotonic() < limit
        time.sleep(0.2)
    (timer,) = pair.read("timer", readFrom="master")
    assert timer["deliveredBefore"].timestamp() <= time.time() + 5


def test_stores_have_the_same_tables(tmp_path):
    with Pair(tmp_path) as other:
        before = {kind: other.read(kind, readFrom="master") for kind in METADATA_KINDS}
    path = next((tmp_path / "master").rglob("commitlog")).parent
    for kind in METADATA_KINDS:
        options = store_options({"path": str(path), "kind": kind, "brokerName": NAME})
        found = rows(TableReader(options, TABLE_COLUMNS[kind]))
        names = [name for name in TABLE_COLUMNS[kind] if name not in ("deliveredBefore", "queueOffset", "counter")]
        assert [{n: row[n] for n in names} for row in found] == [{n: row[n] for n in names} for row in before[kind]]


def test_a_damaged_timer_of_a_store_is_an_error_unless_its_backup_is_whole(tmp_path):
    (tmp_path / "config").mkdir()
    file, options = tmp_path / "config" / "timercheck", store_options({"path": str(tmp_path), "kind": "timer"})
    whole = encode_file(TimerProgress(1_700_000_000_000, 7, 5, 3), 0)

    def read():
        return rows(TableReader(options, TABLE_COLUMNS["timer"]))

    assert read() == []
    file.write_bytes(bytes(4096))  # as Java makes it, before anything is delivered
    assert read() == []
    damages = (whole[:40], "too short"), (b"\x7f" + whole[1:], "not a time"), (b"\xff" * 4096, "not a time")
    for damage, told in (*damages, (whole[:16] + b"\xff" + whole[17:], "up to offset -")):
        file.write_bytes(damage)
        with pytest.raises(BadRecord, match=rf"config/timercheck cannot be read \(.*{told}.*has no backup"):
            read()
        backup = file.with_name("timercheck.bak")
        backup.write_bytes(whole)
        assert [(row["queueOffset"], row["counter"]) for row in read()] == [(7, 3)]
        backup.write_bytes(damage)
        with pytest.raises(BrokenFile, match="neither can its backup"):
            read()
        backup.unlink()


def test_a_broker_that_answers_nonsense_about_its_timer_is_named(pair, monkeypatch):
    answer = Response(1, 0, "", {}, memoryview(b"\xff" * 56))
    monkeypatch.setattr(LiveBroker, "_retry_on_failure", lambda self, commands: [answer])
    with pytest.raises(CannotRead, match=r"gives no timer: messages delivered before -1 ms, which is not a time"):
        pair.read("timer", readFrom="master")


def test_a_broker_that_does_not_answer_is_an_error_or_left_out(pair):
    options = metadata_options({"nameServer": pair.name_server, "kind": "timer", "fetchOffset.numRetries": "0"})
    reader = MetadataReader(options, LIVE_COLUMNS["timer"])
    gone = InputPartition(type(reader.partitions()[0].value)("broker-x", 1, "127.0.0.1:1"))
    with pytest.raises(CannotRead, match=r"broker broker-x \(1\) at 127.0.0.1:1 gives no timer.*failOnDataLoss=false"):
        list(reader.read(gone))
    given = {"nameServer": pair.name_server, "kind": "timer", "failOnDataLoss": "false", "fetchOffset.numRetries": "0"}
    assert list(MetadataReader(metadata_options(given), LIVE_COLUMNS["timer"]).read(gone)) == []


def test_a_broker_without_timers_has_no_row_of_them(monkeypatch):
    answer = Response(1, 3, "request type 366 not supported", {}, memoryview(b""))  # as Java 4 answers
    monkeypatch.setattr(LiveBroker, "_retry_on_failure", lambda self, commands: [answer])
    broker = LiveBroker("127.0.0.1:1", metadata_options({"nameServer": "127.0.0.1:1", "kind": "timer"}).cluster)
    assert read_metadata(broker, "timer", LIVE_COLUMNS["timer"]) == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "topics"}, "did you mean 'topic_configs'"),
        ({"kind": "timer", "topic": "Orders"}, "chooses messages, and kind=timer has none"),
        ({"kind": "timer", "startingOffsets": "earliest"}, "no option 'startingOffsets'"),
    ],
)
def test_options_that_do_not_fit_are_refused(given, told):
    source = RocketmqSource({"nameServer": "127.0.0.1:1", **given})
    with pytest.raises(BadOption, match=told):
        source.schema()
        metadata_options(source.options)


def test_which_groups_lag_on_which_replica_is_one_statement(spark, pair):
    """The blocks of docs/spark.md, run as they stand there."""
    python, sql = blocks("## Metadata as tables", "python", "sql")
    scope = {"spark": spark}
    pair.replica.stop()  # it no longer follows, and a copy of it that does not is started on its store
    role = {"brokerName": NAME, "brokerId": "1", "brokerRole": "SLAVE", "slaveMetadataSyncFirstDelay": "3600000"}
    pair.commit(4)
    behind = SecondBroker(pair.name_server, pair.directory / "replica", **role, slaveMetadataSyncInterval="3600000")
    with_old_offsets = behind.start()
    try:
        exec(python[0].replace("127.0.0.1:9876", pair.name_server), scope)
        assert {f"rmq_{TOPIC}", *(f"rmq_{kind}" for kind in METADATA_KINDS)} <= set(scope["views"])
        assert spark.sql(f"select count(*) n from rmq_{TOPIC}").first().n >= 10
        lagging = spark.sql(sql[0]).collect()
        assert [(row.consumerGroup, row.topic, row.queueId, row.behind) for row in lagging] == [
            (GROUP, TOPIC, 0, 2),
            (GROUP, TOPIC, 1, 2),
        ]
        assert {row.replica for row in lagging} == {with_old_offsets.address}
    finally:
        with_old_offsets.stop()
        pair.replica.start()


def test_views_of_topics_with_the_same_name_in_other_letters_are_refused(spark, pair, monkeypatch):
    monkeypatch.setattr("twinlog.spark.views.Cluster.topics_like", lambda self, pattern: ["Orders", "orders"])
    with pytest.raises(BadOption, match="'Orders' and 'orders' would be one view"):
        register_views(spark, pair.name_server)
    with pytest.raises(BadOption, match="not a regular expression"):
        register_views(spark, pair.name_server, pattern="(")
