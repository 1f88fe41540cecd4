"""What is about to be cut is on disk under another name first."""

import pytest
from tests.store.store_at import NOW, bodies, fill, kill, open_store


class Crash(Exception):
    """The process ends here."""


def crash(*_, **__):
    raise Crash


def test_the_bytes_of_a_cut_tail_are_kept(tmp_path):
    with open_store(tmp_path) as store:
        places = fill(store, 20, queues=1)
        tail = bytes(store.commit_log.slice(places[5].physical_offset, store.log_end - places[5].physical_offset))
        kept = store.cut_tail(places[5].physical_offset, NOW)
        assert kept.read_bytes() == tail
        assert bodies(store) == [b"body %d" % n for n in range(5)]


def test_a_crash_between_the_backup_of_a_tail_and_its_cut_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    places = fill(store, 20, queues=1)
    monkeypatch.setattr(store.commit_log, "truncate", crash)
    with pytest.raises(Crash):
        store.cut_tail(places[5].physical_offset, NOW)
    kill(store)
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == 20
        kept = store.cut_tail(places[5].physical_offset, NOW + 1)
        assert kept.stat().st_size == places[-1].end - places[5].physical_offset


def test_a_log_that_is_set_aside_is_whole_wherever_a_crash_comes(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    fill(store, 300, queues=1)
    log = bytes(store.commit_log.slice(0, 1000))
    monkeypatch.setattr(store.queues, "delete_all", crash)  # the log is gone, its queues are not
    with pytest.raises(Crash):
        store.set_log_aside(NOW)
    kill(store)
    segments = sorted((tmp_path / "store" / "set-aside" / str(NOW) / "commitlog").iterdir())
    assert len(segments) > 1 and segments[0].read_bytes()[:1000] == log
    with open_store(tmp_path) as store:
        assert (store.log_end, store.max_offset("TopicA", 0)) == (0, 0)
