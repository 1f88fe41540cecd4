"""Small stores for tests: settings, messages, and a stop that looks like kill -9."""

from twinlog.settings.store import StoreSettings
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.store.queues.read import ReadStatus
from twinlog.wire.message import decode_messages

NOW = 1_700_000_000_000
SEGMENT = 16 * 1024


def settings_at(path, **changes):
    small = {
        "root_dir": str(path / "store"),
        "segment_bytes": SEGMENT,
        "queue_file_bytes_given": 2_000,
        "batch_queue_file_bytes": 46_000,
        "index_slots": 100,
        "index_entries": 400,
    }
    return StoreSettings(**small | changes)


def open_store(path, *, settings=None, **options):
    return MessageStore.open(settings_at(path, **settings or {}), **{"clock_ms": lambda: NOW} | options)


def draft(number=0, topic="TopicA", queue_id=0, **more):
    properties = f"KEYS\x01key-{number}\x02UNIQ_KEY\x01ID{number:030d}\x02TAGS\x01tag\x02".encode()
    return Draft(topic, queue_id, b"body %d" % number, properties, **more)


def fill(store, count, *, queues=2, start=0):
    """Append `count` messages over some queues; returns their places."""
    places = [store.append(draft(number, queue_id=number % queues)) for number in range(start, start + count)]
    assert all(place.ok for place in places)
    store.dispatch_pending()
    return places


def bodies(store, topic="TopicA", queue_id=0, queue_offset=0):
    found = []
    while (result := store.read(topic, queue_id, queue_offset, count_max=32)).status is ReadStatus.FOUND:
        found += [one.body for buffer in result.buffers for one in decode_messages(buffer)]
        queue_offset = result.next_offset
    return found


def kill(store):
    """Close a store as a killed process does: files stay as they are, nothing is flushed, `abort` stays."""
    store._closed = True
    store.commit_log._drop_next = lambda: None
    store.commit_log.close()
    store.queues.files.close()
    if store.index is not None:
        store.index._io.close()
    store._lock.release()


def write_log(path, offset, data, segment=SEGMENT):
    file_path = path / "store" / "commitlog" / f"{offset - offset % segment:020d}"
    with file_path.open("r+b") as file:
        file.seek(offset % segment)
        file.write(data)
