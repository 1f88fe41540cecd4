"""Idempotent writes without a JVM: neither a row twice nor a row missing, however often and wherever a task failed."""

import random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.topics import numbers
from tests.spark.writing.written import NamedTopic, frame, numbered, rows_of, task, write

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client.sync import Admin
from twinlog.net.errors import RequestTimeout
from twinlog.spark.errors import CannotWrite
from twinlog.spark.writing import stamped_write
from twinlog.spark.writing.stamp_lookup import StampLookup
from twinlog.spark.writing.stamps import LAYOUT_PROPERTY, STAMP_PROPERTY
from twinlog.wire.message import Message

pytestmark = pytest.mark.timeout(120)


class Failed(Exception):
    pass


def fails_after(batches, count: int):
    """The rows of a task that dies while it reads its input."""
    yield from batches[:count]
    raise Failed


def parts(batch: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    return [batch.slice(at, rows) for at in range(0, len(batch), rows)]


def test_a_second_attempt_goes_on_where_the_first_one_stopped(make_topic):
    topic = make_topic(queues=3)
    batches = parts(numbered(3000), 500)
    with pytest.raises(Failed):
        task(topic, "query-1", batch_id=5, partition=2).run(fails_after(batches, 4))
    before = len(topic.read())
    assert 0 < before <= 2000
    result = task(topic, "query-1", batch_id=5, partition=2).run(iter(batches))
    assert sorted(topic.read(), key=int) == numbers(3000)
    assert (result.skipped, result.rows) == (before, 3000 - before)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_any_failures_in_any_places_give_every_row_once(make_topic, seed, queues):
    dice = random.Random(seed)
    topic = make_topic(queues=queues)
    rows = [{"body": b"%d" % n} for n in range(dice.randrange(1, 700))]
    for one in rows:
        kind = dice.randrange(4)
        one["shardingKey"] = f"k{dice.randrange(6)}" if kind == 1 else None
        one["queueId"] = dice.randrange(queues) if kind == 2 else None
        one["tags"] = "t" * dice.randrange(3)
    whole = frame(rows)
    for _ in range(3):
        batches = parts(whole, dice.randrange(1, 300))
        made = task(topic, "again", batch_id=1, batchBytes=dice.choice([300, 3000, 131072]))
        with pytest.raises(Failed):
            made.run(interrupted(made, batches, dice))
    result = task(topic, "again", batch_id=1).run(iter(parts(whole, dice.randrange(1, 300))))
    assert sorted(topic.read(), key=int) == numbers(len(rows))
    assert result.rows + result.skipped == len(rows)


def interrupted(made, batches, dice):
    """Some batches, each sent to a random extent, so that queues differ in how much they hold."""
    for batch in batches[: dice.randrange(len(batches) + 1)]:
        yield batch
        made._sender.drain(dice.randrange(1, 20_000))
    raise Failed


def test_stamps_tell_rows_of_other_batches_partitions_and_writes_apart(make_topic):
    topic = make_topic()
    for place in ({}, {"batch_id": 1}, {"partition": 1}, {"write_id": "other"}):
        write(topic, numbered(10), **{"write_id": "one", **place})
        assert write(topic, numbered(10), **{"write_id": "one", **place}).skipped == 10
    assert len(topic.read()) == 40
    stamps = {dict(row["properties"])[STAMP_PROPERTY] for row in rows_of(topic)}
    assert {"one/0/0/0", "one/1/0/9", "one/0/1/5", "other/0/0/3"} <= stamps
    assert len(stamps) == 40


def test_delayed_compressed_and_large_rows_are_known_again(make_topic):
    topic = make_topic(queues=2)
    rows = [{"body": bytes([n]) * (300_000 if n % 7 == 0 else 200), "delayLevel": n % 3} for n in range(1, 30)]
    more = {"write_id": "mixed", "compressBodyOverBytes": 1000}
    assert write(topic, frame(rows), **more).rows == 29
    assert write(topic, frame(rows), **more).skipped == 29


def test_rows_of_several_topics_are_known_again(make_topic):
    one, two = make_topic(), make_topic(queues=3)
    rows = [{"body": b"%d" % n, "topic": (one if n % 3 else two).name} for n in range(500)]
    for skipped in (0, 500):
        assert write(one, frame(rows), write_id="many", topic="").skipped == skipped
    assert len(one.read()) + len(two.read()) == 500


def test_a_batch_begun_with_fewer_queues_is_finished_with_those(make_topic):
    topic = make_topic(queues=2)
    batches = parts(numbered(2000), 500)
    with pytest.raises(Failed):
        task(topic, "grown").run(fails_after(batches, 3))
    held = len(topic.read())
    assert held
    topic.resize(6)
    result = task(topic, "grown").run(iter(batches))
    assert result.skipped == held
    assert sorted(topic.read(), key=int) == numbers(2000)
    assert {row["queueId"] for row in rows_of(topic)} == {0, 1}
    layouts = {dict(row["properties"]).get(LAYOUT_PROPERTY) for row in rows_of(topic)}
    assert layouts == {None, "broker-dev:2"}


def test_only_the_blocks_that_are_looked_for_carry_the_list_of_queues(make_topic, monkeypatch):
    monkeypatch.setattr(stamped_write, "_LAYOUT_BLOCKS_MIN", 2)
    topic, rows = make_topic(queues=2), numbered(128 * 5)
    write(topic, rows, write_id="short")
    with_list = {int(row["body"]) for row in rows_of(topic) if LAYOUT_PROPERTY in dict(row["properties"])}
    assert with_list == {0, 128}
    topic.resize(4)  # now four blocks are looked for, and two of them have no list
    assert write(topic, rows, write_id="short").skipped == 128 * 5


def test_a_list_of_queues_that_is_not_found_is_an_error(make_topic, monkeypatch):
    topic, real = make_topic(queues=2), StampLookup.find
    write(topic, numbered(300), write_id="lost")
    monkeypatch.setattr(StampLookup, "find", lambda *asked: [_without_list(one) for one in real(*asked)])
    with pytest.raises(CannotWrite, match=r"begun with the queues of another list, now there are broker-dev:2"):
        write(topic, numbered(300), write_id="lost")


def _without_list(message: Message | None) -> Message | None:
    if message is not None:
        message.properties.pop(LAYOUT_PROPERTY, None)
    return message


def test_a_batch_whose_queues_are_gone_is_an_error_that_says_what_to_do(make_topic):
    topic = make_topic(queues=4)
    write(topic, numbered(2000), write_id="shrunk")
    topic.resize(2)
    with pytest.raises(CannotWrite, match=r"begun with the queues broker-dev:4, now .* broker-dev:2.*idempotent"):
        write(topic, numbered(2000), write_id="shrunk")


def test_rows_in_another_order_are_an_error_and_not_a_loss(make_topic):
    topic = make_topic()
    write(topic, numbered(100), write_id="order")
    with pytest.raises(CannotWrite, match=r"another body under the stamp of row 0 of partition 0.*Sort within"):
        write(topic, numbered(100, start=1), write_id="order")


def test_a_look_up_that_fails_is_asked_again(make_topic, monkeypatch):
    topic = make_topic()
    write(topic, numbered(100), write_id="asked")
    left = [3]
    real = StampLookup._ask

    def ask(self, address, commands):
        if left[0]:
            left[0] -= 1
            raise RequestTimeout(address, commands[0].code, 1)
        return real(self, address, commands)

    monkeypatch.setattr(StampLookup, "_ask", ask)
    assert write(topic, numbered(100), write_id="asked").skipped == 100
    left[0] = 3
    with pytest.raises(RequestTimeout):
        write(topic, numbered(100), write_id="asked", numRetries=1)


def test_a_broker_without_an_index_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stamped_write, "_brokers_with_index", set())
    with EmbeddedBroker(tmp_path, {"messageIndexEnable": "false"}) as broker:
        with Admin(broker.namesrv_address) as admin:
            admin.create_topic("T", queues=1)
        with pytest.raises(CannotWrite, match=r"topic T broker broker-dev queue 0.*messageIndexEnable=true"):
            write(NamedTopic(broker.namesrv_address, "T"), numbered(10), write_id="blind")


def test_only_rows_with_a_delay_or_a_time_are_looked_for_where_such_rows_wait(make_topic, monkeypatch):
    asked, find = set(), StampLookup.find
    monkeypatch.setattr(
        StampLookup, "find", lambda self, at, stored_in, keys: asked.add(stored_in) or find(self, at, stored_in, keys)
    )
    topic = make_topic(queues=1)
    write(topic, numbered(3), write_id="w")
    assert asked == {topic.name}
    write(topic, numbered(3, delayLevel=None), write_id="delayed")
    assert asked == {topic.name, "SCHEDULE_TOPIC_XXXX"}
    write(topic, numbered(3, deliverAt=None), write_id="other")
    assert asked == {topic.name, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"}
