"""A run of messages leaves the same bytes as the same messages one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.settings.store import StoreSettings
from twinlog.store.log.append import Draft
from twinlog.store.message_store import MessageStore
from twinlog.store.property_scan import dispatch_properties
from twinlog.wire.java_text import tags_code

HOST = ("10.0.0.7", 4711)
TOPICS = ("T", "Other", "SCHEDULE_TOPIC_XXXX")
properties = st.sampled_from(
    [
        b"",
        b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02",
        b"x\x01" + b"y" * 5000 + b"\x02",
        b"UNIQ_KEY\x01U\x02DELAY\x013\x02",
        b"DELAY\x0199",
        b"TAGS\x01a\x02__CRC32#\x011234567890\x02",
        b"__CRC32#\x011234567890\x02TAGS\x01a",
        b"DELAY\x01soon\x02",
    ]
)
rows = st.tuples(
    st.sampled_from(TOPICS),
    st.integers(0, 2),
    st.binary(max_size=3000),
    properties,
    st.sampled_from([0, 1_700_000_000_000, 2**70]),
    st.sampled_from([0, 7, -1]),
    st.sampled_from([0, 1, 4, 8, 16, 0x301]),
    st.sampled_from([0, 3]),
)


def found_in(data: bytes) -> tuple[int, str, str | None]:
    tags, keys, uniq_key = dispatch_properties(data)
    return tags_code(tags), keys, uniq_key


def play(given_rows: list, *, run: bool, crc: bool, born_host=HOST) -> tuple:
    with tempfile.TemporaryDirectory() as folder:
        settings_ = StoreSettings(
            root_dir=folder,
            segment_bytes=64 * 1024,
            index_slots=10,
            index_entries=100,
            message_bytes_max=2500,
            property_crc_enabled=crc,
        )
        with MessageStore.open(settings_, clock_ms=lambda: 1000, store_host=("127.0.0.1", 10911)) as store:
            places = []
            left = list(given_rows)
            while left:
                stored = store.append_run(born_host, left) if run else []
                places += stored
                left = left[len(stored) :]
                if left:
                    topic, queue_id, body, text, born, flag, sys_flag, retries, *found = left.pop(0)
                    draft = Draft(
                        topic, queue_id, body, text, born_host, born, flag, sys_flag, retries, found=tuple(found)
                    )
                    one = store.append(draft)
                    if one.ok:
                        places.append((one.physical_offset, one.queue_offset, one.size))
            store.dispatch_pending()
            log_end = store.log_end
            offsets = {(t, q): store.max_offset(t, q) for t in TOPICS for q in range(3)}
            units = [store.unit(t, q, o) for (t, q), end in offsets.items() for o in range(end)]
        files = sorted(Path(folder).glob("commitlog/*"))
        return places, log_end, units, [file.read_bytes() for file in files]


@settings(max_examples=40, deadline=None)
@given(st.lists(rows, max_size=40), st.booleans())
def test_a_run_writes_what_single_appends_write(given_rows, crc):
    given_rows = [(*row, *found_in(row[3])) for row in given_rows]
    assert play(given_rows, run=True, crc=crc) == play(given_rows, run=False, crc=crc)


def test_a_run_is_really_taken_once_its_queue_is_known():
    row = ("T", 0, b"x", b"", 0, 0, 0, 0, 0, "", None)
    with tempfile.TemporaryDirectory() as folder, MessageStore.open(StoreSettings(root_dir=folder)) as store:
        store.append(Draft("T", 0, b"first"))
        assert [place[1] for place in store.append_run(HOST, [row] * 5)] == [1, 2, 3, 4, 5]


def test_a_sender_with_a_new_kind_of_address_is_left_to_append():
    row = ("T", 0, b"x", b"", 0, 0, 0, 0, 0, "", None)
    with tempfile.TemporaryDirectory() as folder, MessageStore.open(StoreSettings(root_dir=folder)) as store:
        store.append(Draft("T", 0, b"first"))
        assert store.append_run(("::1", 1), [row]) == []
        assert store.append_run(("not an address", 1), [row]) == []
