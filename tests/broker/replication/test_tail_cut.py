"""A broker that was replaced cuts its log: killed after any step, the next start finishes it, and nothing is lost."""

import dataclasses

import pytest
from tests.broker.running import broker_conf, running_broker
from tests.store.store_at import NOW, bodies, draft, fill, kill, open_store, settings_at

from twinlog.broker.replication.noted_tails import NotedTail, load_tails
from twinlog.broker.replication.tail_cut import IntentBroken, begin_cut, finish_cut
from twinlog.metadata.tables import open_tables
from twinlog.replication.errors import ReplicationError
from twinlog.replication.replica.cut_plan import CutIntent, CutStep, plan_cut
from twinlog.store.message_store import MessageStore

KEPT, WRITTEN = 12, 20


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def replaced(tmp_path):
    """A store with an intention to cut it after `KEPT` messages; returns the bytes of the tail."""
    with open_store(tmp_path) as store:
        places = fill(store, WRITTEN, queues=1)
        cut_at = places[KEPT].physical_offset
        tail = bytes(store.commit_log.slice(cut_at, store.log_end - cut_at))
        begin_cut(store, cut_at, "new:10911", 7, NOW)
    tables = open_tables(tmp_path / "store" / "config", NOW)
    tables.offsets.commit("ahead", "TopicA", 0, WRITTEN, NOW)
    tables.offsets.commit("before", "TopicA", 0, 3, NOW)
    tables.offsets.commit("elsewhere", "TopicB", 0, 99, NOW)
    tables.save()
    return tail


def kept_files(path):
    return sorted((path / "store" / "set-aside").glob("*/tail-*"))


def check_cut(path, tail):
    (file,) = kept_files(path)
    assert file.read_bytes() == tail
    assert not (path / "store" / "config" / "twinlogCut").exists()
    begin, end = map(int, file.name.split("-")[1:])
    (noted,) = load_tails(path / "store")
    assert noted == NotedTail(
        begin=begin, end=end, messages=WRITTEN - KEPT, file=str(file), master_epoch=7, at_ms=NOW
    ), "kept for the history of the group"
    with open_store(path) as store:
        assert bodies(store) == [b"body %d" % n for n in range(KEPT)]
    tables = open_tables(path / "store" / "config", NOW)
    tables.load()
    offsets = {
        group: tables.offsets.get(group, topic, 0) for topic, group in (("TopicA", "ahead"), ("TopicA", "before"))
    }
    assert offsets == {"ahead": KEPT, "before": 3}
    assert tables.offsets.get("elsewhere", "TopicB", 0) == 99, "a queue that is not here has no end"


def test_the_tail_is_set_aside_and_cut(tmp_path, replaced):
    assert finish_cut(settings_at(tmp_path), NOW + 5) == kept_files(tmp_path)[0]
    check_cut(tmp_path, replaced)
    assert finish_cut(settings_at(tmp_path), NOW + 6) is None, "it is over"


@pytest.mark.parametrize("last", CutStep)
def test_killed_after_any_step_the_next_start_finishes_it(tmp_path, replaced, last, monkeypatch):
    """Seen to fail for CUT with a plan that leaves out CAP_OFFSETS when the log is cut already."""

    def stop(step):
        if step is last:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "close", kill)
        with pytest.raises(Crash):
            finish_cut(settings_at(tmp_path), NOW + 5, after=stop)
    finish_cut(settings_at(tmp_path), NOW + 6)
    check_cut(tmp_path, replaced)


def test_a_tail_that_was_written_in_part_is_written_again(tmp_path, replaced):
    partial = tmp_path / "store" / "set-aside" / str(NOW)
    partial.mkdir(parents=True)
    with open_store(tmp_path) as store:
        cut_at = store.log_end - len(replaced)
        (partial / f"tail-{cut_at}-{store.log_end}").write_bytes(replaced[:50])
    finish_cut(settings_at(tmp_path), NOW + 5)
    check_cut(tmp_path, replaced)


def test_an_intention_that_comes_back_does_not_cut_what_the_new_master_sent(tmp_path, replaced):
    """Seen to fail with a plan that compares offsets only: 30 acknowledged messages were cut."""
    intent = (tmp_path / "store" / "config" / "twinlogCut").read_bytes()
    finish_cut(settings_at(tmp_path), NOW + 5)
    with open_store(tmp_path) as store:
        for number in range(30):
            assert store.append(draft(1000 + number, queue_id=0)).ok
        store.dispatch_pending()
    (tmp_path / "store" / "config" / "twinlogCut").write_bytes(intent)
    assert finish_cut(settings_at(tmp_path), NOW + 6) is None
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == KEPT + 30


async def test_a_broker_without_failover_keeps_its_tail(tmp_path, replaced):
    """Seen to fail: a broker that an operator started as master, for it had the newest log, was cut first."""
    conf = dataclasses.replace(broker_conf(tmp_path / "store"), store=settings_at(tmp_path))
    async with running_broker(conf):
        assert not (tmp_path / "store" / "config" / "twinlogCut").exists(), "nor is it cut later"
    assert not kept_files(tmp_path)
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == WRITTEN


def test_a_broken_intention_says_what_to_do(tmp_path, replaced):
    (tmp_path / "store" / "config" / "twinlogCut").write_bytes(b"{")
    with pytest.raises(IntentBroken, match="Move it away"):
        finish_cut(settings_at(tmp_path), NOW)


def test_there_is_nothing_to_cut_behind_the_end(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 3)
        with pytest.raises(ReplicationError, match="nothing is to be cut"):
            begin_cut(store, store.log_end, "new:10911", 7, NOW)


def test_the_order_of_the_steps():
    intent = CutIntent(100, 200, "digest", "new:10911", 7, NOW)
    assert plan_cut(intent, "digest") == tuple(CutStep)
    assert plan_cut(intent, "digest", is_wanted=False) == (CutStep.FORGET,)
    rest = (CutStep.CAP_OFFSETS, CutStep.NOTE, CutStep.FORGET)
    assert plan_cut(intent, None, is_wanted=False) == rest, "it was cut by then"
    assert plan_cut(intent, "another") == plan_cut(intent, None) == rest
