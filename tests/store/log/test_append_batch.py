"""A batch send leaves the same bytes whether its elements are taken together or made to drafts first."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinlog.settings.store import StoreSettings
from twinlog.store.log import append_batch, batch_layout
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.wire.batch import BatchElement, encode_batch

HOST = ("10.0.0.7", 4711)
texts = [
    b"",
    b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02",
    b"UNIQ_KEY\x01V\x02TAGS\x01b\x02",
    b"UNIQ_KEY\x01V\x02UNIQ_KEY\x01W\x02",
    b"xUNIQ_KEY\x01no\x02",
    b"UNIQ_KEY\x01\x02",
    b"UNIQ_KEY\x01open",
    b"x\x01" + b"y" * 5000 + b"\x02",
    b"x\x01" + b"y" * 4080,
    b"UNIQ_KEY\x01W\x02__CRC32#\x011234567890\x02",
]
elements = st.builds(
    BatchElement, st.binary(max_size=3000), st.sampled_from(texts), st.sampled_from([0, 7, -1, 2**31 - 1])
)
batches = st.tuples(
    st.lists(elements, max_size=12),
    st.sampled_from(["T", "SCHEDULE_TOPIC_XXXX"]),
    st.sampled_from([0, 1_700_000_000_000, 2**70]),
    st.sampled_from([0, 1, 4, 16, 0x301]),
)
# Elements of one layout, as most programs fill their batches, and what makes one differ after all.
names = st.lists(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"x", b"TAGS", b"__CRC32#", b""]), max_size=5)
letters = st.sampled_from([*b"aaabcde", ord(" "), 0xC3, 0xA9, 1, 2])


@st.composite
def alike_batches(draw) -> tuple:
    given_names, count = draw(names), draw(st.integers(1, 6))
    lengths = [draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 4)) for _ in given_names]
    body_bytes, flag = draw(st.sampled_from([0, 1, 20])), draw(st.sampled_from([0, 7]))
    is_closed = draw(st.booleans())
    batch = []
    for _ in range(count):
        values = [bytes(draw(st.lists(letters, min_size=length, max_size=length))) for length in lengths]
        pairs = [name + b"\x01" + value for name, value in zip(given_names, values, strict=True)]
        text = b"\x02".join(pairs) + (b"\x02" if pairs and is_closed else b"")
        differs = draw(st.integers(0, 40)) == 0
        batch.append(BatchElement(draw(st.binary(min_size=body_bytes, max_size=body_bytes)), text, flag + differs))
    return batch, "T", 1_700_000_000_000, 0


@pytest.fixture(autouse=True)
def layouts_are_learned_at_once(monkeypatch):
    monkeypatch.setattr(batch_layout, "_SEEN_BEFORE", 0)
    monkeypatch.setattr(batch_layout, "_MISSES_MAX", 1)
    monkeypatch.setattr(batch_layout, "_LAYOUTS_MAX", 3)
    monkeypatch.setattr(batch_layout, "_SEEN_MAX", 3)


def play(given_batches: list, *, together: bool, crc: bool = True, ext: bool = False) -> tuple:
    with tempfile.TemporaryDirectory() as folder:
        conf = StoreSettings(
            root_dir=folder,
            segment_bytes=64 * 1024,
            index_slots=10,
            index_entries=100,
            message_bytes_max=2500,
            property_crc_enabled=crc,
            queue_ext_enabled=ext,
        )
        with MessageStore.open(conf, clock_ms=lambda: 1000, store_host=("127.0.0.1", 10911)) as store:
            answers, dispatched = [], []
            store.on_dispatch.append(lambda requests: dispatched.extend(requests))
            for batch, topic, born, sys_flag in given_batches:
                data, stored = encode_batch(batch), None
                if together:
                    stored = store.append_elements(HOST, topic, 0, data, born, sys_flag, 0)
                if stored is None:
                    drafts = [Draft(topic, 0, e.body, e.properties, HOST, born, e.flag, sys_flag) for e in batch]
                    stored = store.append_batch(drafts)
                answers.append(stored)
            store.dispatch_pending()
            units = [store.unit("T", 0, offset) for offset in range(store.max_offset("T", 0))]
            keys = [len(store.query("T", key, 32, 0, 2**62).buffers) for key in ("U", "V", "W", "k1", "open", "a")]
            entries = [file.entries(0, 2**20).tolist() for file in store.index._files]
        files = sorted(Path(folder).glob("commitlog/*"))
        return answers, dispatched, units, keys, entries, [file.read_bytes() for file in files]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(batches, max_size=8), st.booleans())
def test_elements_taken_together_are_stored_as_one_by_one(given_batches, crc):
    assert play(given_batches, together=True, crc=crc) == play(given_batches, together=False, crc=crc)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(alike_batches(), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_elements_of_one_layout_are_stored_as_one_by_one(given_batches, crc, ext):
    given_batches *= 2
    assert play(given_batches, together=True, crc=crc, ext=ext) == play(given_batches, together=False, crc=crc, ext=ext)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_bytes_that_are_no_batch_are_left_to_the_decoder(data):
    with tempfile.TemporaryDirectory() as folder, MessageStore.open(StoreSettings(root_dir=folder)) as store:
        before = store.log_end
        if store.append_elements(HOST, "T", 0, data, 0, 0, 0) is None:
            assert store.log_end == before


def test_an_ordinary_batch_is_really_taken_together():
    data = encode_batch([BatchElement(b"x", b"UNIQ_KEY\x01U%d\x02" % n) for n in range(5)])
    with tempfile.TemporaryDirectory() as folder, MessageStore.open(StoreSettings(root_dir=folder)) as store:
        stored = store.append_elements(HOST, "T", 0, data, 0, 0, 0)
        assert stored is not None and (stored.queue_offset, len(stored.physical_offsets)) == (0, 5)
        assert store.append_elements(("::1", 1), "T", 0, data, 0, 0, 0) is None


def test_values_that_are_counted_up_fit_the_layout_of_the_batch_before(monkeypatch):
    def counted(first: int) -> bytes:
        return encode_batch(
            [BatchElement(b"%04d" % n, b"KEYS\x01k%04d\x02TAGS\x01a\x02" % n) for n in range(first, first + 9)]
        )

    with tempfile.TemporaryDirectory() as folder, MessageStore.open(StoreSettings(root_dir=folder)) as store:
        store.append_elements(HOST, "T", 0, counted(0), 0, 0, 0)
        monkeypatch.setattr(append_batch, "_walk", lambda *args: pytest.fail("walked element by element"))
        assert store.append_elements(HOST, "T", 1, counted(100), 0, 0, 0) is not None
        assert store.append_elements(HOST, "U", 0, counted(200), 5, 1, 2) is not None
