"""A restore without Spark: where queues go, what a message carries, and sends whose answers are lost."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.own_time import own_time

from twinlog.net.errors import ConnectionLost
from twinlog.spark.errors import BadOption, CannotRead
from twinlog.spark.jobs.restore import map_table, send
from twinlog.spark.jobs.restore.restore_plan import (
    ORIGIN,
    CannotRestore,
    RestoreJob,
    check_restore,
    check_room,
    element,
    queue_map,
    queues_needed,
    selection,
    stamp_prefix,
)
from twinlog.spark.jobs.restore.send import QueueSender, send_command, stamped
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode
from twinlog.wire.properties import decode_properties

QUEUE = MessageQueue("Orders", "broker-a", 1)
COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4), min_size=1)


def job(**more) -> RestoreJob:
    return RestoreJob(**{"name_server": "n:1", "topics": ("Orders",), "archive": "/a", **more})


@given(COUNTS, st.sets(st.sampled_from("abcdxyz"), min_size=1))
def test_every_queue_gets_one_of_its_own_and_brokers_keep_theirs(source, brokers):
    found = queue_map("T", "New", source, brokers)
    assert len(found) == sum(source.values())
    assert len(set(found.values())) == len(found)
    for old, new in found.items():
        assert (old.topic, new.topic) == ("T", "New")
        assert new.broker_name in brokers
        if old.broker_name in brokers:
            assert (new.broker_name, new.queue_id) == (old.broker_name, old.queue_id)
    needed = queues_needed(found.values())
    assert sum(needed.values()) == len(found)  # no holes
    assert queue_map("T", "New", source, sorted(brokers, reverse=True)) == found


def test_a_target_without_room_or_without_brokers_is_refused():
    with pytest.raises(CannotRestore, match="has no master"):
        queue_map("T", "T", {"a": 4}, [])
    with pytest.raises(CannotRestore, match="has 2 writable queues on a, the source has 4: give it 4"):
        check_room("T", {"a": 4}, {"a": 2})
    check_room("T", {"a": 4}, {"a": 8, "b": 1})


def test_a_restore_that_makes_no_sense_is_refused():
    for wrong, told in (
        ({"archive": None}, "an archive or store directories"),
        ({"stores": ("/s",)}, "not both"),
        ({"topics": ()}, "name the topics"),
        ({"name": "a:b"}, "may hold letters"),
        ({"renames": {"Other": "X"}}, "renamed but not restored"),
        ({"topics": ("A", "B"), "renames": {"A": "B"}}, "two topics would become B"),
        ({"from_ms": 5, "to_ms": 5}, "is empty"),
        ({"from_offset": 5, "to_offset": 3}, "is empty"),
        ({"groups": ("g",)}, "the offsets of the groups are missing"),
        ({"group_offsets": "/s"}, "has no effect without --groups"),
    ):
        with pytest.raises(BadOption, match=told):
            check_restore(job(**wrong))
    check_restore(job(groups=("g",), group_offsets="/s"))


def test_a_selection_is_a_condition():
    assert selection(job()) == "true"
    chosen = job(from_ms=1, to_ms=2, from_offset=3, to_offset=4, brokers=("a", "b'c"), queues=(0, 2))
    assert selection(chosen) == (
        "storeTimestamp >= timestamp_millis(1) and storeTimestamp < timestamp_millis(2) and queueOffset >= 3 and "
        "queueOffset < 4 and brokerName in ('a', 'b\\'c') and queueId in (0, 2)"
    )


def test_a_message_keeps_its_own_properties_and_loses_those_of_its_way():
    old = {"KEYS": "k", "UNIQ_KEY": "u", "DELAY": "3", "TRAN_MSG": "true", "mine": "1", ORIGIN: "old:T@b@0@1"}
    one = element("run", QUEUE, 7, b"x", 5, old)
    assert decode_properties(one.properties) == {
        "KEYS": "k",
        "UNIQ_KEY": "u",
        "mine": "1",
        ORIGIN: "run:Orders@broker-a@1@7",
    }
    assert one.flag == 5
    with pytest.raises(CannotRestore, match="queue 1 offset 7: its properties"):
        element("run", QUEUE, 7, b"x", 0, {"big": "x" * 33000})


def test_stamps_are_read_back_and_only_ours():
    rows = [
        {ORIGIN: "run:Orders@broker-a@1@5"},
        {ORIGIN: "run:Orders@broker-a@11@6"},
        {ORIGIN: "other:Orders@broker-a@1@7"},
        {"KEYS": "k"},
        {ORIGIN: "run:Orders@broker-a@1@x"},
        {ORIGIN: "run:Orders@broker-a@1@12", "KEYS": "k"},
    ]
    array = pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([array], names=["properties"])
    assert stamped(batch, stamp_prefix("run", QUEUE)).tolist() == [5, 12]


def test_a_single_message_is_a_plain_send_and_more_are_a_batch():
    elements = [element("r", QUEUE, n, b"%d" % n, n, {}) for n in range(3)]
    alone, batch = send_command(QUEUE, elements[:1], 9), send_command(QUEUE, elements, 9)
    assert (alone.code, bytes(alone.body or b"")) == (RequestCode.SEND_MESSAGE_V2, b"0")
    assert batch.code == RequestCode.SEND_BATCH_MESSAGE
    assert decode_batch(batch.body or b"") == elements


class FakeTarget:
    """A queue in memory that loses requests or answers as told: "ok", "lost" before it stores, "unanswered" after.

    With "away" it is not registered, and with "blind" it cannot be read either, behind a lost answer.
    """

    wait_ms = 0

    def __init__(self, events, topic="Orders") -> None:
        self.queue = MessageQueue(topic, "broker-b", 0)
        self.log: list[int] = []
        self.requests: list[int] = []
        self._events = iter(events)
        self._is_blind = False

    def stamps(self, prefix, start):
        if self._is_blind:
            self._is_blind = False
            raise CannotRead("no master is registered")
        return frozenset(self.log[start:]), len(self.log)

    def send(self, elements, place):
        event = next(self._events, "ok")
        if event == "away":
            raise CannotRead("no master is registered")
        self._is_blind = event == "blind"
        if event != "lost":
            self.log += [int(decode_properties(one.properties)[ORIGIN].rpartition("@")[2]) for one in elements]
            self.requests.append(len(elements))
        if event != "ok":
            raise ConnectionLost("broker-b:1", event)

    def forget(self):
        pass


@given(st.lists(st.sampled_from(["ok", "ok", "lost", "unanswered", "away", "blind"]), max_size=12), st.integers(0, 40))
def test_lost_requests_and_lost_answers_give_no_gap_and_no_copy(events, killed_at):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send, "time", own_time(sleep=lambda seconds: None))
        target = FakeTarget(events)
        for limit in (killed_at, 40):  # a run that was killed, and the one after it
            try:
                sender = QueueSender(target, "r", QUEUE, 7)  # pyright: ignore[reportArgumentType]
                for offset in range(limit):
                    sender.add(offset, b"x", 0, {})
                    sender.add(offset, b"x", 0, {})  # a second copy in the source
                if limit == 40:
                    sender.finish()
                    assert sender.sent + sender.present == 40
            except CannotRestore as error:
                assert "not stored after 6 tries" in str(error)
                assert target.log == list(range(len(target.log)))
                return
    assert target.log == list(range(40))


@pytest.mark.parametrize("wait_ms", [5_000, 60_000])
def test_a_target_that_is_away_is_waited_for_as_long_as_broker_wait(monkeypatch, wait_ms):
    now_s = [0.0]
    monkeypatch.setattr(send, "monotonic_ms", lambda: now_s[0] * 1000)
    monkeypatch.setattr(send, "time", own_time(sleep=lambda seconds: now_s.__setitem__(0, now_s[0] + seconds)))
    target = FakeTarget(["away"] * 12)
    target.wait_ms = wait_ms
    sender = QueueSender(target, "r", QUEUE)  # pyright: ignore[reportArgumentType]
    sender.add(0, b"x", 0, {})
    if wait_ms == 60_000:
        sender.finish()
        assert target.log == [0]
        return
    with pytest.raises(CannotRestore, match=r"away for \d+ s: start it, or set --option brokerWait; run again"):
        sender.finish()


def test_retry_topics_are_sent_one_by_one():
    target = FakeTarget([], topic="%RETRY%g")
    sender = QueueSender(target, "r", QUEUE)  # pyright: ignore[reportArgumentType]
    for offset in range(3):
        sender.add(offset, b"x", 0, {})
    sender.finish()
    assert target.requests == [1, 1, 1]


def test_a_map_that_is_replaced_on_a_lake_removes_what_restores_wrote_and_nothing_else(tmp_path, monkeypatch):
    lake = LocalLake(parse_address(tmp_path, "--map"))
    lake.write("_staging/archiving-1/of-an-archive.staged", b"of a batch that is being written")
    lake.write("notes.parquet", b"of a person")

    def stage(_, lake):
        lake.write("_staging/one/failed", b"of an attempt")
        lake.write("_staging/one/1", b"rows")
        return ["_staging/one/1"]

    monkeypatch.setattr(map_table, "open_lake", lambda spark, place: lake)
    monkeypatch.setattr(map_table, "stage_table", stage)
    monkeypatch.setattr(map_table, "read_map", lambda spark, place: None)
    for _ in range(2):
        map_table.replace_map(None, None, parse_address("s3a://bucket/map", "--map"))
    (new,) = map_table._names(lake)
    names = [entry.name for entry in lake.list()]
    assert names == sorted(["_map.json", "_staging/archiving-1/of-an-archive.staged", new, "notes.parquet"])
