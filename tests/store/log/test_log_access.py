"""Reading without the disk in the loop, and with it in a thread."""

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.store_at import SEGMENT, draft, fill, open_store

from twinlog.store import page_cache, readable_store
from twinlog.store.log import log_access
from twinlog.store.log.append import Draft
from twinlog.store.log.log_access import OnDisk
from twinlog.store.page_cache import bytes_in_memory, read_through
from twinlog.store.queues.unit_filters import TagCodes
from twinlog.wire.message import decode_messages


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as first:
        fill(first, 100)
    with open_store(tmp_path) as again:  # to which all of it is old
        yield again


@pytest.fixture
def disk(monkeypatch):
    """A page cache that holds nothing but what was read through: the ranges, by descriptor."""
    read: list[tuple[int, int, int]] = []

    def in_memory(descriptor, position, size):
        end = position
        for one, first, count in sorted(read):
            if one == descriptor and first <= end < first + count:
                end = first + count
        return min(end - position, size)

    monkeypatch.setattr(log_access, "bytes_in_memory", in_memory)
    monkeypatch.setattr(log_access, "read_through", lambda *part: read.append(part))
    return read


def bodies_of(result):
    return [message.body for buffer in result.buffers for message in decode_messages(buffer)]


def test_what_the_system_does_not_have_in_memory_is_not_there_until_it_is_read_through(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if bytes_in_memory(descriptor, 1 << 19, 4096) == 4096:
            pytest.skip("this file system keeps its files in memory")
        read_through(descriptor, 0, 1 << 20)
        assert bytes_in_memory(descriptor, 0, 1 << 20) == 1 << 20
    finally:
        os.close(descriptor)


def test_a_system_without_the_question_has_everything_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "RWF_NOWAIT", 0)
    assert bytes_in_memory(-1, 0, 100) == 100


def test_a_file_that_is_closed_needs_no_reading_and_a_disk_error_is_raised(monkeypatch):
    read_through(-1, 0, 100)

    def broken(*_):
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(page_cache, "read_into", broken)
    with pytest.raises(OSError, match="bad sector"):
        read_through(0, 0, 100)


def test_a_read_in_the_loop_refuses_what_is_on_disk_and_takes_it_after_the_thread(store, disk):
    with pytest.raises(OnDisk):
        store.read("TopicA", 0, 0, log=store.log_in_memory())
    in_thread = store.read("TopicA", 0, 0, log=store.log_on_disk())
    assert disk
    assert bodies_of(store.read("TopicA", 0, 0, log=store.log_in_memory())) == bodies_of(in_thread)


def test_what_was_written_since_the_start_is_not_asked_for(store, disk):
    """Seen to fail while what was written before the first read counted as old."""
    fill(store, 2, start=100)
    assert bodies_of(store.read("TopicA", 0, 50, log=store.log_in_memory())) == [b"body 100"]


def test_recent_is_only_the_newest_part_of_the_log(store, disk, monkeypatch):
    monkeypatch.setattr(readable_store, "RECENT_BYTES", 0)
    fill(store, 2, start=100)
    with pytest.raises(OnDisk):
        store.read("TopicA", 0, 50, log=store.log_in_memory())


def test_units_on_disk_are_not_read_in_the_loop(store, monkeypatch):
    store.flush_queues()
    monkeypatch.setattr("twinlog.store.file_pool.bytes_in_memory", lambda *_: 0)
    with pytest.raises(OnDisk):
        store.read("TopicA", 0, 0, log=store.log_in_memory())
    assert len(bodies_of(store.read("TopicA", 0, 0, log=store.log_on_disk()))) == 32


@pytest.fixture
def asked(monkeypatch):
    """The pieces of files that the system was asked for; it has them all in memory."""
    pieces: list[tuple[int, int, int]] = []

    def in_memory(descriptor, position, size):
        pieces.append((descriptor, position, size))
        return size

    monkeypatch.setattr(log_access, "bytes_in_memory", in_memory)
    monkeypatch.setattr("twinlog.store.file_pool.bytes_in_memory", in_memory)
    return pieces


def read_all(store, topic="TopicA", queues=2, **options):
    for queue_id in range(queues):
        for offset in range(0, store.max_offset(topic, queue_id), 10):
            store.read(topic, queue_id, offset, count_max=10, **options, log=store.log_in_memory())


@pytest.mark.parametrize("options", [{}, {"accept_record": lambda record: True}], ids=["all", "records"])
def test_what_many_queues_share_is_asked_for_once_until_it_is_not_trusted_any_more(store, asked, options, monkeypatch):
    store.flush_queues()
    monkeypatch.setattr(log_access, "monotonic", lambda: 100.0)
    read_all(store, **options)
    segments, units = len(store.commit_log.segments), 2
    assert len(asked) <= 2 * (segments + units)  # 100 records; the first of a file may be asked for by itself
    assert store.log_end // SEGMENT + 1 == segments
    before = len(asked)
    read_all(store, **options)
    assert len(asked) == before
    monkeypatch.setattr(log_access, "monotonic", lambda: 100.0 + log_access.TRUSTED_S)
    read_all(store, **options)
    assert len(asked) == 2 * before


def test_a_part_that_is_only_partly_in_memory_is_not_trusted(store, disk):
    store.read("TopicA", 0, 0, count_max=4, log=store.log_on_disk())
    assert store.read("TopicA", 0, 0, count_max=4, log=store.log_in_memory()).count == 4
    with pytest.raises(OnDisk):
        store.read("TopicA", 0, 4, count_max=4, log=store.log_in_memory())
    with pytest.raises(OnDisk):
        store.read("TopicA", 1, 0, count_max=1, log=store.log_in_memory())


def test_what_is_trusted_has_a_limit(store, asked, monkeypatch):
    monkeypatch.setattr(log_access, "_CHUNKS_MAX", 1)
    monkeypatch.setattr(log_access, "monotonic", lambda: 100.0)
    for _ in range(3):
        read_all(store)
        assert len(store._seen._found) <= 3


def test_a_pull_for_any_number_of_messages_asks_for_no_more_units_than_it_can_get(tmp_path, asked):
    with open_store(tmp_path, settings={"queue_file_bytes_given": 200_000, "segment_bytes": 1 << 20}) as store:
        fill(store, 4_000, queues=1)
        store.flush_queues()
        found = store.read("TopicA", 0, 0, count_max=1 << 31, log=store.log_in_memory())
        assert found.count == store.limits.count_in_memory_max
        assert max(size for _, _, size in asked) <= 2048 * 20


@pytest.mark.parametrize(
    "options", [{}, {"accept": TagCodes({65})}, {"accept_record": lambda record: True}], ids=["all", "tags", "records"]
)
def test_only_the_records_of_the_queue_are_read_however_many_lie_between_them(store, disk, options):
    wanted = []
    for number in range(100, 140):
        place = store.append(Draft("TopicB", 0, b"body", b"TAGS\x01A\x02"))
        segment = store.commit_log.segment_at(place.physical_offset)
        wanted.append((segment.descriptor, place.physical_offset - segment.base, place.size))
        store.append(draft(number))
    store.dispatch_pending()
    found = store.read("TopicB", 0, 0, **options, log=store.log_on_disk())
    assert found.count == 32
    assert set(disk) == set(wanted[:32])
    assert store.read("TopicB", 0, 0, **options, log=store.log_in_memory()) == found


def test_records_by_place_by_key_and_by_time_are_brought_in(store, disk):
    place = store.unit("TopicA", 1, 7)[0]
    with pytest.raises(OnDisk):
        store.message_at(place, log=store.log_in_memory())
    assert store.message_at(place, log=store.log_on_disk()).body == b"body 15"
    assert store.message_at(place, log=store.log_in_memory()).body == b"body 15"
    disk.clear()
    (found,) = store.query("TopicA", "key-15", 1, 0, 1 << 62, log=store.log_on_disk()).buffers
    assert decode_messages(found)[0].body == b"body 15"
    assert disk
    disk.clear()
    assert store.search_offset("TopicA", 0, 0, log=store.log_on_disk()) == 0
    assert disk


def test_a_segment_that_retention_deletes_under_a_thread_is_gone(store):
    log, first = store.log_on_disk(), store.commit_log.segments[0]
    store.flush()
    first.close()
    assert log.slice(0, 100) is None


def test_a_reader_that_looks_up_a_segment_never_gets_another_one(tmp_path):
    with open_store(tmp_path) as store:
        while len(store.commit_log.segments) < 4:
            store.append(draft())
        log = store.commit_log
        bases, segments = log._by_base
        while len(log.segments) > 1:
            store.flush()
            log.drop_oldest()
        assert [one.base for one in segments] == bases  # what a reader has taken stays as it was
        assert log.segment_at(0) is None
        assert log.segment_at(log.log_end - 1).base == 3 * SEGMENT


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_every_way_to_read_gives_the_same(store, data):
    options = {
        "count_max": data.draw(st.integers(1, 60)),
        "accept": data.draw(st.sampled_from([None, lambda code, ext: code is not None])),
        "accept_record": data.draw(st.sampled_from([None, lambda record: record[-1] % 2 == 0 or len(record) % 3 == 0])),
    }
    offset = data.draw(st.integers(-1, 51))
    plain = store.read("TopicA", 0, offset, **options)
    assert store.read("TopicA", 0, offset, **options, log=store.log_on_disk()) == plain
    assert store.read("TopicA", 0, offset, **options, log=store.log_in_memory()) == plain
