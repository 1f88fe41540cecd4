"""The facade: what was appended can be read, survives a close, and refuses when it must."""

import dataclasses

import pytest
from tests.store.store_at import NOW, SEGMENT, bodies, draft, fill, open_store

from twinlog.store.errors import StoreError, StoreLocked
from twinlog.store.log.append import PutStatus
from twinlog.store.queues.read import ReadStatus
from twinlog.wire.message import decode_messages


def test_a_message_is_read_as_soon_as_it_is_dispatched(tmp_path):
    with open_store(tmp_path) as store:
        arrivals = []
        store.on_arrival.append(arrivals.extend)
        stored = store.append(draft(7))
        assert store.read("TopicA", 0, 0).status is ReadStatus.NO_MESSAGE_IN_QUEUE
        assert store.dispatch_pending() == 1
        assert bodies(store) == [b"body 7"]
        assert [one.physical_offset for one in arrivals] == [stored.physical_offset]
        assert store.unit("TopicA", 0, 0)[:2] == (0, stored.size)
        assert store.message_at(0).message_id.startswith("ID")
        assert store.message_at(1) is None
        assert store.store_time_of("TopicA", 0, 0) == NOW
        assert store.search_offset("TopicA", 0, NOW) == 0
        found = store.query("TopicA", "key-7", 10, 0, 1 << 60)
        assert [one.body for buffer in found.buffers for one in decode_messages(buffer)] == [b"body 7"]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_closed_store_opens_clean_with_everything_in_it(tmp_path, count):
    with open_store(tmp_path) as store:
        assert (tmp_path / "store" / "abort").exists()
        for number in range(count):
            assert store.append(draft(number, queue_id=number % 3)).ok
        end = store.log_end
    assert not (tmp_path / "store" / "abort").exists()
    with open_store(tmp_path) as store:
        assert store.report.clean and store.log_end == end == store.dispatched_end == store.flushed_end
        assert store.report.dispatched == 0 and not store.report.damages
        for queue_id in range(3):
            assert bodies(store, queue_id=queue_id) == [b"body %d" % n for n in range(count) if n % 3 == queue_id]
        after = store.append(draft(count, queue_id=1))
        assert after.queue_offset == len([n for n in range(count) if n % 3 == 1])


def test_a_clean_close_leaves_no_segment_that_was_never_used(tmp_path):
    with open_store(tmp_path) as store:
        while store.log_end < SEGMENT * 5 // 8:
            store.append(draft())
    assert [path.name for path in sorted((tmp_path / "store" / "commitlog").iterdir())] == ["0" * 20]


def test_a_second_store_on_the_same_directory_is_refused_before_it_touches_anything(tmp_path):
    with open_store(tmp_path), pytest.raises(StoreLocked, match="stop that broker"):
        open_store(tmp_path)
    open_store(tmp_path).close()


def test_a_replica_and_a_store_with_a_full_disk_take_no_messages(tmp_path):
    with open_store(tmp_path, role="SLAVE") as store:
        assert store.append(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.append_batch([draft()]).status is PutStatus.SERVICE_NOT_AVAILABLE
        store.change_role("ASYNC_MASTER")
        assert store.append(draft()).ok
        store.flags.set(store.flags.DISK_FULL)
        assert store.append(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        store.flags.clear(store.flags.DISK_FULL)


def test_with_sync_flush_a_message_is_visible_only_once_it_is_on_disk(tmp_path):
    with open_store(tmp_path, settings={"flush_disk_type": "SYNC_FLUSH"}) as store:
        first = store.append(draft(1))
        assert store.dispatch_pending() == 0
        assert store.flush() == first.end
        store.append(draft(2))
        assert store.dispatch_pending() == 1
        assert bodies(store) == [b"body 1"]


def test_a_deleted_topic_starts_again_at_offset_zero(tmp_path):
    with open_store(tmp_path) as store:
        for number in range(3):
            store.append(draft(number))
        store.delete_topic("TopicA")
        assert store.max_offset("TopicA", 0) == 0
        assert store.append(draft(9)).queue_offset == 0
        store.dispatch_pending()
        assert bodies(store) == [b"body 9"]


def test_with_read_uncommitted_a_message_is_visible_before_it_is_on_disk(tmp_path):
    with open_store(tmp_path, settings={"flush_disk_type": "SYNC_FLUSH", "read_uncommitted": True}) as store:
        store.append(draft(0))
        assert store.dispatch_pending() == 1
        assert bodies(store) == [b"body 0"]


def test_several_log_directories_share_the_segments(tmp_path):
    places = f"{tmp_path}/a,{tmp_path}/b"
    changes = {"commit_log_dirs_given": places}
    with open_store(tmp_path, settings=changes) as store:
        for number in range(1500):
            store.append(draft(number))
    assert len(list((tmp_path / "a").iterdir())) >= 2 and len(list((tmp_path / "b").iterdir())) >= 1
    with open_store(tmp_path, settings=changes) as store:
        assert len(bodies(store)) == 1500


def test_a_disk_that_became_too_full_by_a_new_limit_gets_no_more_segments(tmp_path, monkeypatch):
    monkeypatch.setattr("twinlog.store.log.commit_log.disk_used_ratio", lambda path: 0.5 if path.name == "a" else 0.1)
    with open_store(tmp_path, settings={"commit_log_dirs_given": f"{tmp_path}/a,{tmp_path}/b"}) as store:
        store.update_settings(dataclasses.replace(store.settings, disk_percent_forcible=40))
        fill(store, 200)
        assert {segment.path.parent.name for segment in store.commit_log.segments} == {"b"}


def test_a_read_only_log_directory_is_read_and_gets_no_new_segments(tmp_path):
    with open_store(tmp_path, settings={"commit_log_dirs_given": f"{tmp_path}/old"}) as store:
        for number in range(100):
            store.append(draft(number))
    before = sorted((tmp_path / "old").iterdir())
    changes = {"commit_log_dirs_given": f"{tmp_path}/new,{tmp_path}/old", "read_only_dirs_given": f"{tmp_path}/old"}
    with open_store(tmp_path, settings=changes) as store:
        for number in range(100, 400):
            store.append(draft(number))
    assert sorted((tmp_path / "old").iterdir()) == before and list((tmp_path / "new").iterdir())
    with open_store(tmp_path, settings=changes) as store:
        assert len(bodies(store)) == 400


def test_a_log_that_ends_in_a_read_only_file_is_refused_with_the_file_named(tmp_path, monkeypatch):
    with open_store(tmp_path, settings={"commit_log_dirs_given": f"{tmp_path}/old"}) as store:
        store.append(draft(0))
    changes = {"commit_log_dirs_given": f"{tmp_path}/new", "read_only_dirs_given": f"{tmp_path}/old"}
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as on a disk that is mounted read-only
    with pytest.raises(StoreError, match=r"old/0{20} .* read-only: move it to a directory of storePathCommitLog"):
        open_store(tmp_path, settings=changes)


def test_segments_that_cannot_be_deleted_keep_those_after_them(tmp_path, monkeypatch):
    with open_store(tmp_path) as store:
        fill(store, 400)
        store.flush()
        monkeypatch.setattr("os.access", lambda path, mode: False)
        assert store.commit_log.drop_oldest() is None
        assert store.log_start == 0
