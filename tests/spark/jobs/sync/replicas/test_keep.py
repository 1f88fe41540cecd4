"""`--keep`: old segments of a replica go, and a broker that starts there is as a master that deleted them."""

import contextlib
import os
import shutil

import pytest
from tests.spark.jobs.sync.test_ticks import SEGMENT, SETTINGS, Master

from twinlog.base.clock import wall_clock_ms
from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer, PullConsumer
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.sync.replicas import replica_trim
from twinlog.spark.jobs.sync.replicas.replica import Replica
from twinlog.spark.jobs.sync.replicas.replica_trim import expired_count
from twinlog.spark.jobs.sync.sync_plan import Keep, parse_keep, parse_kinds
from twinlog.wire.bodies import MessageQueue

HOUR = 3_600_000
SMALL_QUEUES = {**SETTINGS, "mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "50", "maxIndexNum": "100"}


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("7d", Keep(ms=168 * HOUR)),
        ("36h", Keep(ms=36 * HOUR)),
        ("500GB", Keep(bytes=500 * 10**9)),
        ("1.5 TiB", Keep(bytes=3 * 2**39)),
        ("64MiB", Keep(bytes=1 << 26)),
        ("0B", Keep(bytes=0)),
    ],
)
def test_sizes_and_times(text, keep):
    assert parse_keep(text) == keep


@pytest.mark.parametrize("text", ["", "7", "7m", "all", "-1d", "10 days", "1h30m"])
def test_what_is_neither_is_named(text):
    with pytest.raises(BadOption, match="neither a size nor a time: write for example 500GB or 7d"):
        parse_keep(text)


def test_a_copy_of_minutes_and_unknown_kinds_are_refused():
    with pytest.raises(BadOption, match=r"--keep '0.5h' is less than an hour"):
        parse_keep("0.5h")
    assert parse_kinds("topics, groups", ("topics", "groups")) == ("topics", "groups")
    with pytest.raises(BadOption, match="--history-kinds names 'topic'; the kinds are topics, groups"):
        parse_kinds("topic", ("topics", "groups"))


def count(bases, keep, *, end=1000, now=100 * HOUR, stored=None, bytes_max=10**9):
    ages = stored or {}
    return expired_count(bases, end, keep, stored_ms=ages.get, now_ms=now, bytes_max=bytes_max)


def test_at_least_so_much_stays_and_always_the_last_segment():
    bases = [0, 100, 200, 900]
    assert [count(bases, Keep(bytes=size)) for size in (0, 100, 101, 800, 901, 5000)] == [3, 3, 2, 2, 0, 0]
    assert count(bases, Keep(bytes=0), end=900) == 2, "the file after it is empty"
    assert count(bases, Keep(bytes=0), bytes_max=100) == 1, "a tick deletes only so much"
    stored = {100: 2 * HOUR, 200: 50 * HOUR, 900: 99 * HOUR}
    assert count(bases, Keep(ms=60 * HOUR), stored=stored) == 1
    assert count(bases, Keep(ms=10 * HOUR), stored=stored) == 2
    assert count(bases, Keep(ms=10 * HOUR), stored={200: 1}) == 0, "a segment whose age is unknown stays"


@pytest.fixture
def master(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "master", SMALL_QUEUES) as broker,
        Producer(broker.namesrv_address, "PG") as producer,
    ):
        yield Master(tmp_path, broker, producer)


def filled(master):
    """A topic whose messages are all old, and one of which some are."""
    with master.admin() as admin:
        for topic in ("Old", "Both"):
            admin.create_topic(topic, queues=1)
    master.send(60, topic="Old")
    master.send(400, topic="Both")


def bases(replica):
    return sorted(int(path.name) for path in (replica / "commitlog").iterdir())


def ends(broker, topic):
    with Admin(broker.namesrv_address) as admin:
        (found,) = admin.topic_stats(topic).values()
    return found.min_offset, found.max_offset


def test_a_broker_on_a_shortened_copy_is_like_a_master_whose_files_expired(master):
    filled(master)
    keep = Keep(bytes=SEGMENT + 1)
    report = master.tick(keep=keep)
    assert report.error == "" and report.dropped == report.start == bases(master.replica)[0] > SEGMENT
    assert report.end - report.start >= SEGMENT + 1
    assert master.tick(keep=keep).dropped == 0, "nothing more to delete"
    master.send(200, topic="Both")
    again = master.tick(keep=keep)
    assert again.error == "" and again.lag == 0 and again.start > report.start, "it follows, and its start as well"

    theirs = master.home / "master" / "store"
    for name in bases(master.replica):
        ours = (master.replica / "commitlog" / f"{name:020d}").read_bytes()
        assert ours.rstrip(b"\0") == (theirs / "commitlog" / f"{name:020d}").read_bytes().rstrip(b"\0")

    expired = master.home / "expired"  # what the master would be if its own retention had deleted the same files
    master.broker.stop()
    shutil.copytree(theirs, expired / "store")
    for name in bases(theirs):
        if name < again.start:
            (expired / "store" / "commitlog" / f"{name:020d}").unlink()
    shutil.copytree(master.replica, master.home / "copy" / "store")
    with EmbeddedBroker(master.home / "copy", SMALL_QUEUES) as copy, EmbeddedBroker(expired, SMALL_QUEUES) as other:
        for topic in ("Old", "Both"):
            assert ends(copy, topic) == ends(other, topic), topic
        assert ends(copy, "Old") == (60, 60), "a queue without messages keeps its end"
        ours, wanted = (pulled(one, "Both") for one in (copy, other))
        assert [one.body for one in ours] == [one.body for one in wanted] and len(ours) > 100
        for topic in ("Old", "Both"):
            assert answer_to(copy, topic, 30) == answer_to(other, topic, 30), "a group's offset below the start"
        with Producer(copy.namesrv_address, "PG") as producer:
            assert producer.send(Outgoing("Old", b"goes on")).queue_offset == 60


def pulled(broker, topic):
    with PullConsumer(broker.namesrv_address, "readers") as consumer:
        return list(consumer.messages(MessageQueue(topic, "broker-a", 0), *ends(broker, topic)))


def answer_to(broker, topic, offset):
    """What a pull from below the first message is answered with."""
    with PullConsumer(broker.namesrv_address, "readers") as consumer:
        found = consumer.pull(MessageQueue(topic, "broker-a", 0), offset, count_max=1)
        return found.status, found.next_offset, found.min_offset, found.max_offset


def test_a_copy_on_which_a_broker_ran_loses_its_old_queue_and_index_files_too(master):
    filled(master)
    assert master.tick().error == ""
    home = master.home / "ran"
    shutil.copytree(master.replica, home / "store")
    with EmbeddedBroker(home, SMALL_QUEUES) as broker:
        assert ends(broker, "Old") == (0, 60)
    shutil.rmtree(master.replica)
    shutil.copytree(home / "store", master.replica)
    queue = master.replica / "consumequeue" / "Both" / "0"
    before = len(list(queue.iterdir())), len(list((master.replica / "index").iterdir()))
    master.send(300, topic="Both")
    report = master.tick(keep=Keep(bytes=SEGMENT))
    assert report.error == "" and report.dropped > SEGMENT
    indexes = len(list((master.replica / "index").iterdir()))
    assert min(int(one.name) for one in queue.iterdir()) > 0 and 0 < indexes < before[1]
    shutil.copytree(master.replica, master.home / "again" / "store")
    with EmbeddedBroker(master.home / "again", SMALL_QUEUES) as broker:
        assert ends(broker, "Old") == (60, 60)
        low, high = ends(broker, "Both")
        found = pulled(broker, "Both")
        assert [one.queue_offset for one in found] == list(range(low, high)) and high == 700


@pytest.mark.parametrize("step", ["_queue_records", "_drop_segments", "_drop_index_files"])
def test_killed_between_two_steps_the_next_tick_ends_with_the_same_store(master, monkeypatch, step):
    filled(master)
    original = getattr(replica_trim, step)

    def dies(*words):
        original(*words)
        raise OSError("killed")

    with monkeypatch.context() as dying:
        dying.setattr(replica_trim, step, dies)
        assert "killed" in master.tick(keep=Keep(bytes=SEGMENT)).error
    assert master.tick(keep=Keep(bytes=SEGMENT)).error == ""
    shutil.copytree(master.replica, master.home / "copy" / "store")
    with EmbeddedBroker(master.home / "copy", SMALL_QUEUES) as copy:
        assert ends(copy, "Old") == (60, 60)
        low, high = ends(copy, "Both")
        assert high == 400
        found = pulled(copy, "Both")
        assert [one.queue_offset for one in found] == list(range(low, high))


def test_days_count_by_the_times_of_the_messages(master):
    master.send(400)
    master.tick()
    before, now = bases(master.replica), wall_clock_ms()
    with contextlib.closing(Replica.open(master.replica)) as replica:
        assert replica_trim.drop_old_segments(replica, Keep(ms=HOUR), now) == 0
        assert replica_trim.drop_old_segments(replica, Keep(ms=HOUR), now + 2 * HOUR) == before[-1]
    assert bases(master.replica) == before[-1:], "the last segment stays"
    master.send(5)
    report = master.tick()
    assert (report.error, report.lag, report.start) == ("", 0, before[-1])


def test_a_tick_that_fails_deletes_nothing(master):
    master.send(400)
    master.tick()
    before = bases(master.replica)
    master.broker.stop()
    assert master.tick(keep=Keep(bytes=0)).error and bases(master.replica) == before, "it may be the only copy"
    assert os.path.exists(master.replica)
