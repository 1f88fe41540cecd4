"""Columns equal the messages that the plain codec decodes, whatever the records hold."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.spark.errors import BadRecord
from twinlog.spark.reading.decode import Decoder
from twinlog.spark.reading.property_columns import PropertyColumns
from twinlog.spark.schema import STORE_MESSAGE_COLUMNS, arrow_schema, checked
from twinlog.store.scan.scan import scan
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.compression import compress
from twinlog.wire.message import Message, decode_message, encode_message
from twinlog.wire.properties import decode_properties
from twinlog.wire.values import sys_flag

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
words = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)
hosts = st.sampled_from([("127.0.0.1", 10911), ("10.2.3.4", 65535), ("2001:db8::7", 1), ("0.0.0.0", -1)])
messages = st.builds(
    Message,
    topic=st.sampled_from(["T", "Orders", "订单", "x" * 200]),
    body=st.binary(max_size=40),
    queue_id=int32,
    flag=int32,
    queue_offset=int64,
    physical_offset=int64,
    sys_flag=st.sampled_from([0, sys_flag.TRANSACTION_COMMIT]),
    born_timestamp=st.integers(0, 2**42),
    born_host=hosts,
    store_timestamp=st.integers(0, 2**42),
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    properties=st.dictionaries(st.one_of(words, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"])), words, max_size=5),
)


def rows_of(data, *, columns=STORE_MESSAGE_COLUMNS, batch_records=1000, **options):
    decoder = Decoder(columns, broker_name="broker-a", segment="s", **options)
    found = []
    for records in scan(data, 0, len(data), 0, check_offset=False, batch_records=batch_records):
        for batch in decoder.decode(records):
            assert batch.schema.equals(arrow_schema(columns))
            found += batch.to_pylist()
    return found


def expected(message):
    return {
        "topic": message.topic,
        "brokerName": "broker-a",
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "msgId": message.message_id,
        "keys": message.properties.get("KEYS"),
        "tags": message.properties.get("TAGS"),
        "body": message.body,
        "properties": list(message.properties.items()),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodyCRC": message.body_crc,
        "storeSize": message.store_size,
        "bornTimestamp": message.born_timestamp,
        "bornHost": _host(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": _host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "segment": "s",
    }


def _host(host):
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def _comparable(row):
    times = {name: round(row[name].timestamp() * 1000) for name in ("bornTimestamp", "storeTimestamp")}
    return row | times


@settings(max_examples=60)
@given(st.lists(messages, max_size=12), st.sampled_from([1, 3, 1000]))
def test_columns_hold_what_the_plain_codec_decodes(given_messages, batch_records):
    records = [encode_message(message) for message in given_messages]
    found = rows_of(b"".join(records), batch_records=batch_records)
    assert [_comparable(row) for row in found] == [expected(decode_message(record)) for record in records]


pieces = st.lists(st.sampled_from([b"a", b"TAGS", b"\x01", b"\x02", "ü".encode(), b"\xff", b""]), max_size=12)


@given(st.lists(pieces.map(b"".join), min_size=1, max_size=8))
def test_properties_are_split_as_the_plain_decoder_splits_them(texts):
    columns = PropertyColumns(pa.array(texts, pa.binary()))
    plain = [decode_properties(text) for text in texts]
    assert [dict(pairs) for pairs in columns.map_column().to_pylist()] == plain
    assert [len(pairs) for pairs in columns.map_column().to_pylist()] == [len(pairs) for pairs in plain]
    assert columns.column("TAGS").to_pylist() == [pairs.get("TAGS") for pairs in plain]


def test_compressed_bodies_are_inflated_and_lose_their_flag():
    packed, flags = compress(b"tea " * 100, "zstd")
    data = encode_message(Message(topic="T", body=b"plain")) + encode_message(
        Message(topic="T", body=packed, sys_flag=flags)
    )
    assert [(row["body"], row["sysFlag"]) for row in rows_of(data)] == [(b"plain", 0), (b"tea " * 100, 0)]
    assert [row["body"] for row in rows_of(data, inflates=False)] == [b"plain", packed]


def test_a_body_that_does_not_inflate_is_an_error_with_its_place():
    data = encode_message(Message(topic="T", body=b"no zlib", sys_flag=1, queue_id=3, queue_offset=41))
    with pytest.raises(BadRecord, match=r"topic T broker broker-a queue 3 offset 41.*decompress=false"):
        rows_of(data)


def test_messages_of_an_inner_batch_are_rows():
    elements = [BatchElement(flag=n, body=b"%d" % n, properties=b"TAGS\x01t%d\x02" % n) for n in range(3)]
    batch = Message(
        topic="T", body=encode_batch(elements), sys_flag=0xC0, queue_offset=7, properties={"INNER_NUM": "3"}
    )
    data = encode_message(batch) + encode_message(Message(topic="T", body=b"after", queue_offset=10))
    found = [(row["queueOffset"], row["body"], row["tags"], row["sysFlag"]) for row in rows_of(data)]
    assert found == [(7, b"0", "t0", 0), (8, b"1", "t1", 0), (9, b"2", "t2", 0), (10, b"after", None, 0)]


def test_a_time_beyond_what_spark_holds_is_the_last_moment():
    data = encode_message(Message(topic="T", body=b"", born_timestamp=2**63 - 1))
    (records,) = scan(data, 0, len(data), 0, check_offset=False)
    (batch,) = Decoder({"bornTimestamp": "timestamp"}, broker_name="b").decode(records)
    assert batch.column(0).cast(pa.int64()).to_pylist() == [((1 << 63) // 1000 - 1) * 1000]


def test_large_records_travel_in_batches_of_few_rows(monkeypatch):
    monkeypatch.setattr("twinlog.spark.reading.decode.BATCH_BYTES_MAX", 1000)
    data = b"".join(encode_message(Message(topic="T", body=bytes(n))) for n in (300, 300, 3000, 10))
    (records,) = scan(data, 0, len(data), 0, check_offset=False)
    sizes = [len(batch) for batch in Decoder({"storeSize": "int"}, broker_name="b").decode(records)]
    assert sizes == [2, 1, 1]
    assert np.sum(sizes) == 4


def test_a_batch_that_spark_would_misread_is_stopped_here():
    """Spark compares nothing but the first batch of a partition with its schema."""
    wrong = pa.record_batch([pa.array([1], pa.int64())], names=["storeSize"])
    with pytest.raises(AssertionError):
        checked(wrong, arrow_schema({"storeSize": "int"}))
