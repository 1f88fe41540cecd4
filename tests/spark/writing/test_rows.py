"""Rows to requests without a broker: the vectorised encoder against the plain codec, queues, stamps."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.client.sending.outgoing import queue_for_key
from twinlog.spark.errors import BadRow
from twinlog.spark.writing.options import write_options
from twinlog.spark.writing.properties import RowNames, pair
from twinlog.spark.writing.queues import BLOCK_ROWS, layout_text, parse_layout, send_queue_numbers
from twinlog.spark.writing.rows import EncodedRows, pieces_of
from twinlog.spark.writing.stamp_lookup import stored_prefix
from twinlog.spark.writing.stamps import Stamps
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.compression import decompress
from twinlog.wire.properties import decode_properties

GIVEN = {"nameServer": "127.0.0.1:9876"}
MAPS = pa.map_(pa.string(), pa.string())
TYPES = {"body": pa.binary(), "flag": pa.int32(), "delayLevel": pa.int32(), "queueId": pa.int32(), "properties": MAPS}
QUEUES = tuple(MessageQueue("T", f"broker-{b}", q) for b in "ab" for q in range(4))

plain_text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=8)
filled_text = plain_text.filter(bool)
row = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=300),
        "tags": st.none() | plain_text,
        "keys": st.none() | plain_text,
        "properties": st.none() | st.dictionaries(filled_text.map("p".__add__), st.none() | filled_text, max_size=3),
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        "delayLevel": st.none() | st.integers(0, 3),
        "shardingKey": st.none() | plain_text,
    }
)


def options(**more):
    return write_options({**GIVEN, "topic": "T", **{name: str(value) for name, value in more.items()}}, streaming=False)


def frame(rows: list[dict]) -> pa.RecordBatch:
    columns = {name: [one[name] for one in rows] for name in rows[0]}
    if "properties" in columns:
        columns["properties"] = [None if m is None else list(m.items()) for m in columns["properties"]]
    return pa.RecordBatch.from_pydict({n: pa.array(v, TYPES.get(n, pa.string())) for n, v in columns.items()})


def encoded(batch: pa.RecordBatch, chosen) -> EncodedRows:
    (piece,) = pieces_of(batch, chosen, 0, 0)
    sequences = np.arange(len(piece))
    return EncodedRows(piece, sequences, [pair("UNIQ_KEY", Stamps("w", 0, 0).keys("T", sequences))], chosen)


def wanted_properties(one: dict, sequence: int) -> dict[str, str]:
    named = {"TAGS": one["tags"], "KEYS": one["keys"], "__SHARDINGKEY": one["shardingKey"]}
    named["DELAY"] = str(one["delayLevel"]) if one["delayLevel"] else None
    named |= one["properties"] or {}
    named["UNIQ_KEY"] = Stamps("w", 0, 0).key("T", sequence)
    return {name: value for name, value in named.items() if value}


@settings(max_examples=60)
@given(st.lists(row, min_size=1, max_size=30), st.sampled_from([200, 1000, 100_000]), st.sampled_from([None, 50]))
def test_requests_hold_every_row_once_in_order_as_the_plain_codec_reads_them(rows, batch_bytes, compress_over):
    more = {} if compress_over is None else {"compressBodyOverBytes": compress_over}
    made = encoded(frame(rows), options(batchBytes=batch_bytes, **more))
    at = 0
    for begin, end, is_batch in made.requests(0, len(rows)):
        assert begin == at
        at = end
        if not is_batch:
            assert end == begin + 1
            assert rows[begin]["delayLevel"] or made.offsets[end] - made.offsets[begin] > batch_bytes
            found = [(made.bodies[begin].as_py(), made.properties[begin].as_py(), int(made.flags[begin]))]
        else:
            data = bytes(made.batch_body(begin, end))
            assert len(data) <= batch_bytes
            found = [(element.body, element.properties, element.flag) for element in decode_batch(data)]
            assert len(set(made.sys_flags[begin:end].tolist())) == 1
        for number, (body, properties, flag) in zip(range(begin, end), found, strict=True):
            assert decompress(body, int(made.sys_flags[number])) == rows[number]["body"]
            assert flag == (rows[number]["flag"] or 0)
            assert decode_properties(properties) == wanted_properties(rows[number], number)
    assert at == len(rows)


def test_rows_are_taken_apart_by_topic_and_the_option_wins():
    batch = frame([{"body": b"%d" % n, "topic": "AB"[n % 2]} for n in range(6)])
    without = write_options(GIVEN, streaming=False)
    pieces = {piece.topic: piece for piece in pieces_of(batch, without, 100, 3)}
    assert pieces["B"].columns["body"].to_pylist() == [b"1", b"3", b"5"]
    assert pieces["B"].rows[1] == "row 103 of partition 3"
    assert [piece.topic for piece in pieces_of(batch, options(), 0, 0)] == ["T"]


def test_a_retry_topic_gets_no_batches():
    made = encoded(frame([{"body": b"x"}] * 3), options(topic="%RETRY%group"))
    assert [is_batch for _, _, is_batch in made.requests(0, 3)] == [False] * 3


def test_many_large_bodies_are_taken_in_pieces_of_about_one_size():
    batch = pa.RecordBatch.from_pydict({"body": pa.array([bytes(3 << 20)] * 14)})
    pieces = list(pieces_of(batch, options(), 0, 0))
    assert [len(piece) for piece in pieces] == [4, 5, 5]


def test_batches_have_about_one_size_and_not_too_many_rows():
    rows = encoded(frame([{"body": b"x" * 1000}] * 3000), options(batchBytes=1_000_000))
    assert [end - begin for begin, end, _ in rows.requests(0, 3000)] == [750] * 4
    rows = encoded(frame([{"body": b"x"}] * 5000), options())
    assert [end - begin for begin, end, _ in rows.requests(0, 5000)] == [2048, 2048, 904]


def test_a_slice_of_a_batch_is_encoded_like_the_rows_themselves():
    rows = [{"body": b"b%d" % n, "properties": {"n": str(n)} if n % 3 else None} for n in range(50)]
    part = encoded(frame(rows).slice(17, 20), options())
    whole = encoded(frame(rows[17:37]), options())
    assert part.batch_body(0, 20) == whole.batch_body(0, 20)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"body": None}, "row 1 of partition 0: body is null"),
        ({"body": b""}, "row 1 of partition 0: body is empty"),
        ({"body": bytes(5 << 20)}, "row 1 .*5242880 bytes, the limit is 4194304"),
        ({"topic": None}, "row 1 .*topic is null"),
        ({"topic": "a b"}, "row 1 .*'a b' is not a valid name"),
        ({"tags": "a\x01b"}, "row 1 .*column tags .*U\\+0001"),
        ({"keys": "a\x02b"}, "row 1 .*column keys .*U\\+0002"),
        ({"properties": {"a": "b\x02"}}, "row 1 .*property value .*U\\+0002"),
        ({"properties": {"a\x01": "b"}}, "row 1 .*property name .*U\\+0001"),
        ({"properties": {"a": ""}}, "row 1 .*empty value"),
        ({"properties": {"": "a"}}, "row 1 .*empty name"),
        ({"properties": {"a": "b", "TAGS": "x"}}, "row 1 .*'TAGS' is reserved: use column tags"),
        ({"properties": {"UNIQ_KEY": "x"}}, "row 1 .*'UNIQ_KEY' is reserved.*reservedProperties=drop"),
        ({"properties": {"a": "b" * 33000}}, "row 1 .*bytes of properties, the limit is 32767"),
        ({"delayLevel": -1}, "row 1 .*delayLevel is -1"),
    ],
)
def test_a_row_that_no_broker_accepts_is_named(bad, message):
    good = {"body": b"x", "topic": "T", "tags": "t", "keys": "k", "properties": {"ok": "1"}, "delayLevel": 0}
    chosen = write_options(GIVEN, streaming=False)
    with pytest.raises(BadRow, match=message):
        for piece in pieces_of(frame([good, {**good, **bad}, good]), chosen, 0, 0):
            EncodedRows(piece, np.arange(len(piece)), [pair("UNIQ_KEY", pa.array(["u"] * len(piece)))], chosen)


def test_reserved_properties_are_dropped_on_request():
    rows = [{"body": b"x", "properties": {"MSG_REGION": "r", "a": str(n), "UNIQ_KEY": "old"}} for n in range(3)]
    made = encoded(frame(rows), options(reservedProperties="drop"))
    assert decode_properties(made.properties[2].as_py()) == {"a": "2", "UNIQ_KEY": Stamps("w", 0, 0).key("T", 2)}


# -- queues --------------------------------------------------------------------------------------------


def numbers(rows: list[dict], start: int = 0, queues=QUEUES) -> list[int]:
    batch = frame(rows)
    columns = {name: batch.column(name) for name in batch.schema.names}
    count = len(rows)
    return send_queue_numbers(queues, columns, np.arange(count), start, RowNames(0, np.arange(count))).tolist()


def test_rows_without_a_wish_go_to_one_queue_after_the_other_in_blocks():
    found = numbers([{"body": b"x"}] * (9 * BLOCK_ROWS), start=2)
    blocks = [set(found[n * BLOCK_ROWS : (n + 1) * BLOCK_ROWS]) for n in range(9)]
    assert blocks == [{8 + (2 + n) % 8} for n in range(9)]


@given(st.lists(plain_text, min_size=1, max_size=20))
def test_a_sharding_key_goes_where_javas_selector_sends_it(keys):
    found = numbers([{"body": b"x", "shardingKey": key} for key in keys])
    for key, number in zip(keys, found, strict=True):
        if key:
            assert QUEUES[number] == queue_for_key(key, QUEUES)
        else:
            assert number >= len(QUEUES)


def test_a_row_may_name_its_queue_its_broker_or_both():
    rows = [
        {"body": b"x", "brokerName": "broker-b", "queueId": 2, "shardingKey": "k"},
        {"body": b"x", "brokerName": "broker-b", "queueId": None, "shardingKey": None},
        {"body": b"x", "brokerName": None, "queueId": 3, "shardingKey": None},
        {"body": b"x", "brokerName": None, "queueId": None, "shardingKey": None},
    ]
    named, of_broker, of_id, free = numbers(rows)
    assert QUEUES[named] == MessageQueue("T", "broker-b", 2)
    assert QUEUES[of_broker].broker_name == "broker-b"
    assert QUEUES[of_id].queue_id == 3
    assert free >= len(QUEUES)


def test_a_queue_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(BadRow, match=r"row 1 .*topic T has no queue 9 of broker broker-a.*broker-a:4;broker-b:4"):
        numbers([{"body": b"x", "brokerName": n, "queueId": q} for n, q in ((None, None), ("broker-a", 9))])


def test_a_layout_is_text_and_back():
    assert parse_layout("T", layout_text(QUEUES)) == QUEUES


# -- stamps --------------------------------------------------------------------------------------------


def test_stamps_are_the_same_again_and_differ_in_every_part():
    one = Stamps("query", 7, 3)
    sequences = np.array([0, 1, 65535, 65536, 200_000])
    keys = one.keys("T", sequences).to_pylist()
    assert keys == Stamps("query", 7, 3).keys("T", sequences).to_pylist()
    assert [key.decode() for key in keys] == [one.key("T", n) for n in sequences.tolist()]
    others = [Stamps("other", 7, 3), Stamps("query", 8, 3), Stamps("query", 7, 4)]
    all_keys = keys + [key for other in others for key in other.keys("T", sequences).to_pylist()]
    all_keys += one.keys("U", sequences).to_pylist()
    assert len(set(all_keys)) == 5 * len(sequences)
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in all_keys)
    assert one.texts(sequences).to_pylist()[-1] == b"query/7/3/200000" == one.text(200_000).encode()


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_stored_beginning_is_measured_by_few_questions(stored, more):
    asked = []

    def is_stored(row: int) -> bool:
        asked.append(row)
        return row < stored

    assert stored_prefix(stored + more, is_stored) == stored
    assert len(asked) <= 10
