"""Batches that are stored together leave the same bytes as one batch after the other."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.settings.store import StoreSettings
from twinlog.store.file_ops import FileOps
from twinlog.store.log import append_batches
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.store.scan.record_columns import columns_at
from twinlog.wire.batch import BatchElement, decode_batch, encode_batch
from twinlog.wire.errors import BodyError

HOST = ("10.0.0.7", 4711)
KEYS = ("U", "V", "k1", "k2", "ü")
texts = st.sampled_from(
    [
        b"",
        b"UNIQ_KEY\x01U\x02TAGS\x01a\x02",
        b"UNIQ_KEY\x01V\x02TAGS\x01b\x02",
        b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02",
        b"KEYS\x01k1\x02",
        "KEYS\x01ü\x02".encode(),
        b"UNIQ_KEY\x01\x02",
        b"x\x01" + b"y" * 5000 + b"\x02",
        b"KEYS\x01k1",
        b"KEYS\x01k1\x02__CRC32#\x011234567890\x02",
    ]
)
elements = st.builds(BatchElement, st.binary(max_size=3000) | st.just(b"same"), texts, st.sampled_from([0, 7, -1]))
bodies = st.lists(st.tuples(elements, st.sampled_from([1, 1, 2, 9, 20])), min_size=1, max_size=5).map(
    lambda drawn: encode_batch([element for element, number in drawn for _ in range(number)])
)
torn = st.tuples(bodies, st.integers(0, 40), st.integers(0, 255)).map(
    lambda drawn: drawn[0][: drawn[1]] + bytes([drawn[2]]) + drawn[0][drawn[1] + 1 :]
)
batches = st.tuples(
    st.sampled_from(["T", "T", "Other", "SCHEDULE_TOPIC_XXXX"]),
    st.integers(0, 1),
    bodies | bodies | bodies | torn,
    st.sampled_from([0, 1_700_000_000_000, 2**70]),
    st.sampled_from([0, 0, 1, 4, 16, 0x301]),
    st.sampled_from([0, 3]),
)


def one_by_one(store: MessageStore, batch: tuple) -> tuple | None:
    topic, queue_id, body, born, sys_flag, reconsumed = batch
    try:
        found = decode_batch(body)
    except BodyError:
        return None
    drafts = [Draft(topic, queue_id, e.body, e.properties, HOST, born, e.flag, sys_flag, reconsumed) for e in found]
    stored = store.append_batch(drafts)
    return (list(stored.physical_offsets), stored.queue_offset, stored.size) if stored.ok else None


def play(given_groups: list[list[tuple]], *, together: bool, **options) -> tuple:
    with tempfile.TemporaryDirectory() as folder:
        conf = StoreSettings(
            root_dir=folder,
            segment_bytes=64 * 1024,
            index_slots=10,
            index_entries=1000,
            message_bytes_max=5500,
            **options,
        )
        with MessageStore.open(conf, clock_ms=lambda: 1000, store_host=("127.0.0.1", 10911)) as store:
            for topic in ("T", "Other"):
                for queue_id in range(2):
                    store.append(Draft(topic, queue_id, b"first"))
            places = []
            for group in given_groups:
                views = [(topic, queue_id, memoryview(body), *more) for topic, queue_id, body, *more in group]
                stored = store.append_batches(HOST, views) if together else None
                if stored is None:
                    places += [one_by_one(store, batch) for batch in group]
                else:
                    offsets = stored.physical_offsets.tolist()
                    for count, queue_offset, size in zip(
                        stored.counts, stored.queue_offsets, stored.sizes, strict=True
                    ):
                        places.append((offsets[:count], queue_offset, size))
                        del offsets[:count]
                store.append(Draft("T", 0, b"between"))
                store.dispatch_pending()
            store.flush()
            store.dispatch_pending()
            queues = [(topic, queue_id) for topic in ("T", "Other") for queue_id in range(2)]
            units = [store.unit(*queue, offset) for queue in queues for offset in range(store.max_offset(*queue))]
            keys = [len(store.query("T", key, 32, 0, 2**62).buffers) for key in KEYS]
        files = sorted(Path(folder).glob("commitlog/*"))
        return places, units, keys, [file.read_bytes() for file in files]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(batches, min_size=1, max_size=6), max_size=4), st.booleans(), st.sampled_from([0, 3000, 99999])
)
def test_batches_stored_together_are_stored_as_one_by_one(given_groups, crc, written_bytes_min):
    with mock.patch.object(append_batches, "_WRITTEN_BYTES_MIN", written_bytes_min):
        together = play(given_groups, together=True, property_crc_enabled=crc)
    assert together == play(given_groups, together=False, property_crc_enabled=crc)


def many(number: int, body: bytes = b"x") -> bytes:
    return encode_batch([BatchElement(body, b"UNIQ_KEY\x01U%06d\x02TAGS\x01a\x02" % n) for n in range(number)])


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("body", [b"x", b""])
def test_ordinary_batches_are_really_taken_together(flush, body):
    group = [("T", 0, many(40, body), 5, 0, 0), ("T", 1, many(30, body), 6, 0, 0), ("T", 0, many(9), 7, 0, 0)]
    given_groups = [group, group]
    assert play(given_groups, together=True, flush_disk_type=flush) == play(
        given_groups, together=False, flush_disk_type=flush
    )
    with tempfile.TemporaryDirectory() as folder, MessageStore.open(StoreSettings(root_dir=folder)) as store:
        assert store.append_batches(HOST, group) is None  # the first message of a queue comes alone
        store.append(Draft("T", 0, b"first"))
        store.append(Draft("T", 1, b"first"))
        stored = store.append_batches(HOST, group)
        assert stored is not None and (stored.counts, stored.queue_offsets) == ([40, 30, 9], [1, 1, 41])
        assert store.append_batches(("::1", 1), group) is None
        made = store._columns_of(stored, group).records
        begin, memory = int(stored.physical_offsets[0]), store._appender.memory
        assert memory is not None and memory[begin : store.log_end] == stored.data
        read, stop = columns_at(
            stored.data, stored.physical_offsets - begin, len(stored.data), begin, check_offset=True
        )
        assert stop is None and made.topics == read.topics
        for name in (name for name in made.__dataclass_fields__ if name not in ("buffer", "topics", "stop")):
            assert getattr(made, name).tolist() == getattr(read, name).tolist(), name
        log_end = store.log_end
        store.truncate(int(stored.physical_offsets[50]))
        store.dispatch_pending()
        assert store.log_end < log_end and store.max_offset("T", 1) == 11


class Torn(FileOps):
    """Fails the `nth` write from now on, after its bytes were written."""

    nth = 0

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        super().write(descriptor, data, at)
        self.nth -= 1
        if self.nth == 0:
            raise OSError(errno.EIO, "injected")


@pytest.mark.parametrize("nth", [1, 2])
def test_a_large_piece_that_cannot_be_written_leaves_nothing_behind(tmp_path, nth):
    batch = ("T", 0, many(900, b"x" * 200), 5, 0, 0)
    ops = Torn()
    with MessageStore.open(StoreSettings(root_dir=str(tmp_path), segment_bytes=1 << 20), ops=ops) as store:
        store.append(Draft("T", 0, b"first"))
        log_end, ops.nth = store.log_end, nth
        assert store.append_batches(HOST, [batch]) is None
        assert store.log_end == log_end and not any(store.commit_log.tail().map[log_end:])
        stored = store.append_batches(HOST, [batch])
        assert stored is not None and stored.queue_offsets == [1]
        store.dispatch_pending()
        assert store.max_offset("T", 0) == 901
