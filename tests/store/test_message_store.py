"""The facade: what was appended can be read, survives a close, and refuses when it must."""

import pytest

from twinlog.settings.store import StoreSettings
from twinlog.store.append import Draft, PutStatus
from twinlog.store.errors import StoreLocked
from twinlog.store.message_store import MessageStore
from twinlog.store.read import ReadStatus
from twinlog.wire.message import decode_messages

NOW = 1_700_000_000_000


def settings_at(path, **changes):
    small = {
        "root_dir": str(path / "store"),
        "segment_bytes": 64 * 1024,
        "queue_file_bytes_given": 20_000,
        "batch_queue_file_bytes": 46_000,
        "index_slots": 100,
        "index_entries": 400,
    }
    return StoreSettings(**small | changes)


def open_store(path, **options):
    changes = options.pop("settings", {})
    return MessageStore.open(settings_at(path, **changes), **{"clock_ms": lambda: NOW} | options)


def draft(number=0, topic="TopicA", queue_id=0, **more):
    properties = f"KEYS\x01key-{number}\x02UNIQ_KEY\x01ID{number:030d}\x02TAGS\x01tag\x02".encode()
    return Draft(topic, queue_id, b"body %d" % number, properties, **more)


def bodies(store, topic="TopicA", queue_id=0, queue_offset=0):
    found = []
    while (result := store.read(topic, queue_id, queue_offset, count_max=32)).status is ReadStatus.FOUND:
        found += [one.body for buffer in result.buffers for one in decode_messages(buffer)]
        queue_offset = result.next_offset
    return found


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
        while store.log_end < 40 * 1024:
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


def test_several_log_directories_share_the_segments(tmp_path):
    places = f"{tmp_path}/a,{tmp_path}/b"
    changes = {"commit_log_dir_given": places}
    with open_store(tmp_path, settings=changes) as store:
        for number in range(1500):
            store.append(draft(number))
    assert len(list((tmp_path / "a").iterdir())) >= 2 and len(list((tmp_path / "b").iterdir())) >= 1
    with open_store(tmp_path, settings=changes) as store:
        assert len(bodies(store)) == 1500
