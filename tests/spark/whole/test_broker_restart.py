"""One of two brokers is restarted under a running stream, an archive and a sink: every message is there once."""

import time

import pytest
from tests.spark.second_broker import SecondBroker
from tests.spark.topics import numbers
from tests.spark.whole.test_with_spark import bodies, read_stream, started, wait_for

from twinlog.client import Outgoing
from twinlog.client.sync import Producer
from twinlog.spark.jobs.archive.job import ArchiveJob, archive, read_archive
from twinlog.wire.bodies import MessageQueue

pytestmark = pytest.mark.timeout(300)


class TwoBrokers:
    """A topic with a queue on each; `send` gives the next numbers to both, as far as they are there."""

    def __init__(self, topic, second) -> None:
        self.topic, self.second = topic, second
        self.sent = 0

    def send(self, count: int, *, to_second: bool = True) -> None:
        """So many messages to each."""
        self.topic.send_numbers(count, start=self.sent)
        self.sent += count
        if to_second:
            with Producer(self.topic.name_server, "restarts") as producer:
                queue = MessageQueue(self.topic.name, self.second.name, 0)
                batch = [Outgoing(self.topic.name, b"%d" % n) for n in range(self.sent, self.sent + count)]
                producer.send_batch(batch, queue=queue)
            self.sent += count


@pytest.fixture
def two(broker, make_topic, tmp_path):
    second = SecondBroker(broker.namesrv_address, tmp_path / "second").start()
    topic = make_topic(queues=1)
    second.add_topic(topic.name)
    yield TwoBrokers(topic, second)
    second.stop()


def test_a_stream_and_its_sink_survive_the_restart_of_a_broker(spark, two, make_topic, tmp_path):
    target = make_topic(queues=1)
    two.second.add_topic(target.name)
    two.send(20)
    frame = read_stream(spark, two.topic, startingOffsets="earliest", maxOffsetsPerTrigger=15)
    # Every row names its broker, so those of the second must wait for it.
    frame = frame.selectExpr("body", "brokerName", "0 as queueId")
    writer = frame.writeStream.format("rocketmq").options(nameServer=target.name_server, topic=target.name)
    writer = writer.option("checkpointLocation", str(tmp_path / "check"))
    query = started(writer.trigger(processingTime="200 milliseconds"))

    def arrived() -> list[str]:
        return sorted(target.read(), key=int)

    try:
        wait_for(lambda: arrived() == numbers(40))
        two.send(20)
        two.second.stop()
        two.send(20, to_second=False)
        time.sleep(4)  # longer than the quick retries of readers and sinks take
        assert query.isActive, query.exception()
        two.second.start()
        two.send(20)
        wait_for(lambda: not query.isActive or len(arrived()) >= two.sent)
        assert query.exception() is None
    finally:
        query.stop()
    assert arrived() == numbers(140)


def test_an_archive_that_runs_on_survives_the_restart_of_a_broker(spark, two, tmp_path):
    target = tmp_path / "archive"
    job = ArchiveJob(
        target=target, name_server=two.topic.name_server, topics=(two.topic.name,), every="500 milliseconds"
    )
    two.send(20)

    def rows() -> list[str]:
        return bodies(read_archive(spark, target)) if list(target.glob("topic=*")) else []

    def steps():
        yield lambda: len(rows()) == 40
        two.second.stop()
        two.send(20, to_second=False)
        yield lambda: len(rows()) == 60  # the other broker goes on
        two.second.start()
        two.send(20)
        yield lambda: len(rows()) == 100

    left = steps()
    waits_for = [next(left)]

    def is_over() -> bool:
        if waits_for[0]():
            waits_for[0] = next(left, None)
        return waits_for[0] is None

    archive(spark, job, is_over=is_over)
    assert rows() == numbers(100)


def test_a_run_up_to_now_waits_for_the_broker_that_it_knows(spark, two, tmp_path):
    job = ArchiveJob(target=tmp_path / "archive", name_server=two.topic.name_server, topics=(two.topic.name,))
    two.send(10)
    assert archive(spark, job).total.rows == 20
    two.send(10)
    two.second.stop()

    looks = iter(range(1_000_000))

    def is_over() -> bool:
        if next(looks) == 15:  # some seconds later: by then it waits
            two.second.start()
        return False

    assert archive(spark, job, is_over=is_over).total.rows == 20
    assert bodies(read_archive(spark, job.target)) == numbers(40)
