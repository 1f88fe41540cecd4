"""Records dispatched as columns leave the same queues and the same index as one request at a time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.index.message_index import Index
from twinlog.store.queues.queue_table import QueueTable
from twinlog.store.scan.column_batch import ROWS_MIN, ColumnBatch
from twinlog.store.scan.replay import requests_of
from twinlog.store.scan.scan import scan
from twinlog.wire.message import Message, encode_message

LEVELS = DelayLevels("1s 5s")
tags = st.sampled_from(["", "A", "B", "Tag-Ü"])
keys = st.sampled_from(["", "k1", "k22", "two keys", " "])
shapes = st.fixed_dictionaries(
    {"TAGS": tags, "KEYS": keys, "UNIQ_KEY": st.sampled_from(["", "0A", "0B", "0C0C"]), "other": st.just("x")}
)
rows = st.tuples(
    st.sampled_from(["T", "T2"]), st.integers(0, 2), shapes, st.sampled_from([0] * 12 + [4, 8, 12]), st.booleans()
)


def log_of(drawn) -> bytes:
    """Records as a master would have written them: queue offsets count up, physical offsets fit."""
    data, ends = bytearray(), {}
    for number, (topic, queue_id, shape, flags, reverse) in enumerate(drawn):
        pairs = [(name, value) for name, value in shape.items() if value]
        offset = ends.get((topic, queue_id), 0) if flags in (0, 8) else 0
        message = Message(
            topic=topic,
            queue_id=queue_id,
            body=b"body",
            sys_flag=flags,
            queue_offset=offset,
            physical_offset=len(data),
            store_timestamp=1_700_000_000_000 + number,
            properties=dict(reversed(pairs) if reverse else pairs),
        )
        if flags in (0, 8):
            ends[topic, queue_id] = offset + 1
        data += encode_message(message)
    return bytes(data)


def built(directory, batches) -> tuple[dict, list]:
    """What queues and index hold after these batches."""
    queues = QueueTable(directory / "q", queue_file_bytes=20_000)
    index = Index(directory / "i", slot_count=50, entry_max=2000, clock_ms=lambda: 1_700_000_000_000)
    for batch in batches:
        queues.dispatch(batch)
        index.dispatch(batch)
    units = {(q.topic, q.queue_id): (q.min, q.end, bytes(q.read(q.min, 10_000))) for q in queues.queues()}
    found = [index.query(t, k, 10_000, 0, 1 << 62) for t in ("T", "T2") for k in ("0A", "0B", "0C0C", "k1", "two")]
    queues.close()
    index.close()
    return units, found


@settings(max_examples=60)
@given(st.lists(rows, min_size=1, max_size=12), st.booleans())
def test_columns_and_requests_dispatch_the_same(tmp_path_factory, pattern, uniform):
    drawn = (pattern[:1] if uniform else pattern) * (2 * ROWS_MIN // min(len(pattern), 12) + 1)
    data = log_of(drawn)
    batches = [batch for batch in scan(data, 0, len(data), 0) if len(batch)]
    home = tmp_path_factory.mktemp("columns")
    plain = built(home / "plain", [requests_of(batch, LEVELS) for batch in batches])
    assert built(home / "columns", [ColumnBatch(batch, LEVELS) for batch in batches]) == plain


def test_an_even_batch_has_columns_and_an_odd_one_is_a_sequence():
    even = [("T", 0, {"TAGS": "A", "UNIQ_KEY": f"{n:04d}"}, 0, False) for n in range(ROWS_MIN)]
    data = log_of(even)
    batch = ColumnBatch(next(scan(data, 0, len(data), 0)), LEVELS)
    assert batch.columns is not None and len(batch.columns.key_hash) == ROWS_MIN
    assert batch[-1] == list(batch)[-1] == batch[ROWS_MIN - 1]
    odd = [*even, ("T", 0, {"TAGS": "A"}, 8, False)]
    data = log_of(odd)
    assert ColumnBatch(next(scan(data, 0, len(data), 0)), LEVELS).columns is None
