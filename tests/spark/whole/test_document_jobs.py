"""The commands and tables of docs/spark.md, run as they stand there, with other paths, addresses and days."""

import json
import re
import shutil

import pytest
from tests.spark.documented import blocks, commands
from tests.spark.jobs.audit.audit_stores import make_master
from tests.spark.jobs.commands import run
from tests.spark.lake.s3_server import KEYS, s3_server

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer, PullConsumer
from twinlog.spark.jobs.archive.job import read_archive
from twinlog.wire.bodies import MessageQueue, SubscriptionGroupConfig

pytestmark = pytest.mark.timeout(300)
GROUP = "billing"
BODIES = [b'{"id": 1, "paid": 2.50}', b'{"id": 2}', b"\x02", b"\x08\x03"]  # JSON, Avro and Protobuf
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class Page:
    """Two clusters, and the page's examples with their addresses."""

    def __init__(self, spark, home, old, new) -> None:
        self.spark, self.home, self.old, self.new = spark, home, old, new
        self._places = {
            "127.0.0.1:9876": old.namesrv_address,
            "10.0.0.1:9876": old.namesrv_address,
            "old:9876": old.namesrv_address,
            "new:9876": new.namesrv_address,
            "10.0.0.1:10911": old.broker_address,
            "10.0.0.2:10911": new.broker_address,
            "/data/": f"{home}/data/",
            "/mnt/": f"{home}/mnt/",
            "lag.html": f"{home}/lag.html",
            "2026, 11, 10": "2999, 1, 1",
            "2026-11-10": "2999-01-01",
        }

    def __call__(self, text: str, **more: str) -> str:
        """A text of the page with our own places."""
        places = {**self._places, **more}
        wanted = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
        return re.sub(wanted, lambda found: places[found[0]], text)

    def run(self, capfd, words: list[str], *added: str, **more: str) -> str:
        """What a command prints that ends well."""
        done = run(capfd, *(self(word, **more) for word in words), *added)
        assert done.exit_code == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def exec(self, capfd, code: str) -> str:
        """What a block of Python prints."""
        capfd.readouterr()
        exec(self(code), {"spark": self.spark})
        return capfd.readouterr().out


@pytest.fixture(scope="module")
def page(spark, tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    with (
        pytest.MonkeyPatch.context() as patch,
        EmbeddedBroker(home / "data" / "broker-a", {"brokerName": "broker-a"}) as old,
        EmbeddedBroker(home / "new") as new,
    ):
        patch.setattr(type(spark), "stop", lambda self: None)  # the session is shared with other tests
        patch.chdir(home)
        with Admin(old.namesrv_address) as admin, Producer(old.namesrv_address, "PG") as producer:
            for topic in ("Orders", "Payments"):
                admin.create_topic(topic, queues=1)
                for number, body in enumerate(BODIES):
                    producer.send(Outgoing(topic, body, keys=f"k{number}"))
            admin.save_group(old.broker_address, SubscriptionGroupConfig(group_name=GROUP))
        with PullConsumer(old.namesrv_address, GROUP, register=False) as consumer:
            consumer.commit(MessageQueue("Orders", "broker-a", 0), 3)
        yield Page(spark, home, old, new)


def test_a_synchronisation_has_its_status_its_ticks_its_history_and_its_samples_of_lag(page, capfd):
    heading = "## Replicas of many masters: `twinlog pipeline sync`"
    _, once, _, status, limited, in_json = commands(heading)
    ticks, changes, then, ranges = blocks(heading, "python")[0]
    page.run(capfd, once)
    assert "in step" in page.run(capfd, status)
    assert "in step" in page.run(capfd, limited)
    (copy,) = json.loads(page.run(capfd, in_json))["brokers"]
    assert re.search(r"broker-a\|\s+0\|\s+0\.0\|\s+0\|", page.exec(capfd, ticks))
    assert '"readQueueNums":1' in page.exec(capfd, changes).replace(" ", "")
    assert "Orders" in page.exec(capfd, then)
    assert re.search(rf"broker-a\|.*\b{copy['replicaEnd']}\b", page.exec(capfd, ranges))

    heading = "## Lag: how far behind, over time"
    _, groups, copies, plot = commands(heading)
    page.run(capfd, groups)
    page.run(capfd, copies)
    page.run(capfd, plot)
    assert "<svg" in (page.home / "lag.html").read_text()
    ((samples,),) = blocks(heading, "python")
    assert re.search(r"billing\|\s+1\|", page.exec(capfd, samples))


def test_an_audit_is_kept_and_differences_are_found(page, capfd):
    make_master(page.home / "data" / "a")
    shutil.copytree(page.home / "data" / "a", page.home / "mnt" / "b")
    heading = "## Audit: is a replica its master's twin?"
    audit, result = blocks(heading, "python")[0]
    assert "equal" in page.run(capfd, commands(heading)[0])
    page.exec(capfd, audit)
    assert "|equal" in page.exec(capfd, result)
    live, mixed, _ = commands("## Metadata differences")
    for words, told in ((live, "Orders"), (mixed, "TopicA")):
        done = run(capfd, *map(page, words))
        assert (done.exit_code, told in done.stdout) == (1, True), done.stderr


@pytest.mark.interop
def test_archives_are_filled_compacted_parsed_and_restored(page, capfd):
    heading = "## Archive: topics as a table of files"
    now, _, cold, compact, *_ = commands(heading)
    page.run(capfd, now)
    page.run(capfd, cold)
    page.run(capfd, compact)
    assert "Orders" in page.exec(capfd, blocks(heading, "python")[0][0].replace("date'2026-11-15'", "current_date()"))
    assert read_archive(page.spark, page("/data/cold")).count() == 4

    (page.home / "order.avsc").write_text(json.dumps(AVRO))
    (page.home / "order.desc").write_bytes(descriptor())
    for words, found in zip(commands("#### Columns from bodies: `--parse`"), ([1, 2], [1], [3]), strict=True):
        lake = f"{page.home}/{words[-1][:4]}"
        page.run(capfd, words, **{"/data/lake": lake})
        table = read_archive(page.spark, lake)
        ids = "body_fields.id" if "body_fields" in table.columns else "id"
        assert [row.id for row in table.selectExpr(f"{ids} id").orderBy("id").collect()] == found
        assert read_archive(page.spark, f"{lake}_unparsed").count() == len(BODIES) - len(found)

    heading = "## Restore: back to a broker"
    plain, monday, groups = commands(heading)
    page.run(capfd, plain, **{"127.0.0.1:9876": page.new.namesrv_address})
    page.run(capfd, monday, **{"127.0.0.1:9876": page.new.namesrv_address, "2026-11-09": "2020-01-01"})
    page.run(capfd, groups)
    ((of_map,),) = blocks(heading, "python")
    assert re.search(r"3\|\s+3\|\s+1\|", page.exec(capfd, of_map))


@pytest.mark.interop
def test_an_archive_in_a_bucket_is_filled_compacted_read_and_restored(page, capfd):
    pytest.importorskip("moto", reason="the S3 server of the tests: pip install 'moto[server]'")
    heading = "## On object stores and HDFS"
    with s3_server() as server, EmbeddedBroker() as target:
        server.client().create_bucket(Bucket="lake")
        archive, *others = commands(heading)
        settings = dict(word.removeprefix("spark.hadoop.").split("=") for word in archive if "fs.s3a" in word)
        for name, value in {**settings, **KEYS}.items():  # a session that runs takes them by these names
            page.spark.conf.set(name, page(value, **{"http://minio:9000": server.endpoint}))
        try:
            for words in (archive, *others):
                page.run(capfd, words, **{"http://minio:9000": server.endpoint, "new:9876": target.namesrv_address})
            ((counts,),) = blocks(heading, "python")
            assert re.search(r"Orders\|.*\|\s+4\|", page.exec(capfd, counts))
        finally:
            for name in (*settings, *KEYS):
                page.spark.conf.unset(name)


def descriptor() -> bytes:
    """A descriptor set with `message Order { int64 id = 1; }` of the package shop."""
    from google.protobuf import descriptor_pb2

    made = descriptor_pb2.FileDescriptorSet()
    file = made.file.add(name="order.proto", package="shop", syntax="proto3")
    order, of = file.message_type.add(name="Order"), descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=of.TYPE_INT64, label=of.LABEL_OPTIONAL)
    return made.SerializeToString()
