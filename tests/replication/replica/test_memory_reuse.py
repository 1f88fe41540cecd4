"""Memory that is expensive is used again, and only for bytes that are on disk."""

import pytest

from twinlog.replication.replica import memory_reuse
from twinlog.replication.replica.memory_reuse import MemoryReuse
from twinlog.settings.store import StoreSettings
from twinlog.store.errors import FlushFailed
from twinlog.store.file_ops import FileOps
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore

SEGMENT = 64 * 1024
SAMPLE, ROUND, CACHED = 1000, 2000, 3000
EXPENSIVE_SECONDS = SAMPLE / 1e9


class Disk(FileOps):
    """Real files on a disk that may fail."""

    fails = False

    def flush(self, descriptor: int) -> None:
        if self.fails:
            raise OSError(5, "the disk is gone")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def master_bytes(tmp_path) -> bytes:
    store = MessageStore.open(StoreSettings(root_dir=str(tmp_path / "master"), segment_bytes=SEGMENT))
    for number in range(100):
        store.append(Draft(topic="T", queue_id=0, body=b"%d" % number * 100, born_host=("127.0.0.1", 1)))
    chunk = store.commit_log.chunk(0, SEGMENT)
    assert chunk is not None
    data = bytes(chunk)
    store.close()
    return data


@pytest.fixture
def replica(tmp_path, monkeypatch, disk):
    for name, value in (("_SAMPLE_BYTES", SAMPLE), ("_ROUND_BYTES", ROUND), ("CACHED_BYTES_MIN", CACHED)):
        monkeypatch.setattr(memory_reuse, name, value)
    settings = StoreSettings(root_dir=str(tmp_path / "replica"), segment_bytes=SEGMENT)
    store = MessageStore.open(settings, role="SLAVE", ops=disk)
    store.dropped = []
    monkeypatch.setattr(store.commit_log, "drop_cached", lambda *ends: store.dropped.append(ends))
    yield store
    if not disk.fails:
        store.close()


def turn(memory: MemoryReuse) -> None:
    """One turn, and the end of the round that it began."""
    memory.turn()
    memory._thread.submit(lambda: None).result()


def take(store: MessageStore, data: bytes, end: int) -> None:
    store.append_raw(store.log_end, data[store.log_end : end])
    store.dispatch_pending()


def test_what_is_flushed_and_far_behind_is_dropped_once(replica, master_bytes):
    memory = MemoryReuse(replica)
    memory.wrote(SAMPLE, EXPENSIVE_SECONDS)
    take(replica, master_bytes, 10_000)
    turn(memory)
    assert replica.flushed_end == 10_000
    first_end = replica.dispatched_end - CACHED
    assert replica.dropped == [(0, first_end)]
    take(replica, master_bytes, 10_000 + ROUND - 1)
    turn(memory)
    assert replica.flushed_end == 10_000, "too little is new"
    take(replica, master_bytes, 20_000)
    turn(memory)
    assert replica.dropped == [(0, first_end), (first_end, replica.dispatched_end - CACHED)]
    memory.stop()


def test_where_memory_is_cheap_nothing_is_flushed_or_dropped(replica, master_bytes):
    memory = MemoryReuse(replica)
    memory.wrote(SAMPLE, EXPENSIVE_SECONDS / 10)
    memory.wrote(SAMPLE - 1, EXPENSIVE_SECONDS)  # not enough to judge by
    take(replica, master_bytes, 10_000)
    turn(memory)
    assert not memory.is_worthwhile and replica.flushed_end == 0 and replica.dropped == []
    memory.stop()


def test_what_is_not_on_disk_or_not_dispatched_stays_in_memory(replica, master_bytes, disk):
    memory = MemoryReuse(replica)
    memory.wrote(SAMPLE, EXPENSIVE_SECONDS)
    replica.append_raw(0, master_bytes[:10_000])
    turn(memory)
    assert replica.flushed_end == 10_000 and replica.dropped == [], "the loop has yet to read it"
    replica.dispatch_pending()
    disk.fails = True
    take(replica, master_bytes, 20_000)
    turn(memory)
    assert replica.flushed_end == 10_000 and all(end <= 10_000 - CACHED for _, end in replica.dropped)
    with pytest.raises(FlushFailed):  # whoever flushes next is not kept from the error
        replica.flush()
    memory.stop()
