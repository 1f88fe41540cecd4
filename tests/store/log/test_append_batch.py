"""A batch send leaves the same bytes whether its elements are taken together or made to drafts first."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.settings.store import StoreSettings
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


def play(given_batches: list, *, together: bool, crc: bool = True, born_host=HOST) -> tuple:
    with tempfile.TemporaryDirectory() as folder:
        conf = StoreSettings(
            root_dir=folder,
            segment_bytes=64 * 1024,
            index_slots=10,
            index_entries=100,
            message_bytes_max=2500,
            property_crc_enabled=crc,
        )
        with MessageStore.open(conf, clock_ms=lambda: 1000, store_host=("127.0.0.1", 10911)) as store:
            answers = []
            for batch, topic, born, sys_flag in given_batches:
                data, stored = encode_batch(batch), None
                if together:
                    stored = store.append_elements(born_host, topic, 0, data, born, sys_flag, 0)
                if stored is None:
                    drafts = [Draft(topic, 0, e.body, e.properties, born_host, born, e.flag, sys_flag) for e in batch]
                    stored = store.append_batch(drafts)
                answers.append(stored)
            store.dispatch_pending()
            units = [store.unit("T", 0, offset) for offset in range(store.max_offset("T", 0))]
            keys = [len(store.query("T", key, 32, 0, 2**62).buffers) for key in ("U", "V", "W", "k1", "open")]
        files = sorted(Path(folder).glob("commitlog/*"))
        return answers, units, keys, [file.read_bytes() for file in files]


@settings(max_examples=40, deadline=None)
@given(st.lists(batches, max_size=8), st.booleans())
def test_elements_taken_together_are_stored_as_one_by_one(given_batches, crc):
    assert play(given_batches, together=True, crc=crc) == play(given_batches, together=False, crc=crc)


@settings(max_examples=25)
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
