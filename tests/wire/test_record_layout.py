"""The layout that fast paths take their offsets from is the layout that the plain codec writes and reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire.message import Message, decode_message, encode_message
from twinlog.wire.record_layout import (
    HEAD_BYTES,
    HEAD_FIELDS,
    HEAD_NUMPY_FIELDS,
    HEADS,
    RECORD_BYTES_MIN,
    is_blank,
    record_properties,
    store_timestamp,
)
from twinlog.wire.values.message_id import encode_host

hosts = st.sampled_from([("10.0.0.1", 10911), ("::1", 4711)])
messages = st.builds(
    Message,
    topic=st.sampled_from(["T", "%RETRY%" + "g" * 130]),
    body=st.binary(max_size=20),
    queue_id=st.integers(0, 9),
    queue_offset=st.integers(0, 2**62),
    physical_offset=st.integers(0, 2**62),
    store_timestamp=st.integers(0, 2**62),
    born_host=hosts,
    store_host=hosts,
    properties=st.dictionaries(st.sampled_from(["TAGS", "a"]), st.just("v")),
)


@given(messages)
def test_every_head_holds_the_fields_of_the_plain_codec(message):
    record = encode_message(message)
    kind = (":" in message.born_host[0]) + 2 * (":" in message.store_host[0])
    values = dict(zip((name for name, _ in HEAD_FIELDS), HEADS[kind].unpack_from(record), strict=True))
    decoded = decode_message(record)
    assert (values["size"], values["body_crc"]) == (len(record), decoded.body_crc)
    assert values["born_host"] == encode_host(message.born_host)
    assert values["store_host"] == encode_host(message.store_host)
    for name in ("queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp"):
        assert values[name] == getattr(decoded, name)
    assert values["body_length"] == len(message.body)


@given(messages)
def test_single_fields_are_read_without_decoding_the_record(message):
    record = memoryview(encode_message(message))
    assert store_timestamp(record) == message.store_timestamp
    assert bytes(record_properties(record)) == b"".join(
        f"{name}\x01{value}\x02".encode() for name, value in message.properties.items()
    )


def test_numpy_and_struct_agree_on_the_head():
    head = np.dtype(HEAD_NUMPY_FIELDS)
    assert head.itemsize == HEADS[0].size == HEAD_BYTES == 88
    record = encode_message(Message(topic="T", body=b"", queue_offset=7, prepared_transaction_offset=-1))
    (row,) = np.frombuffer(record, head, 1)
    assert row["queue_offset"] == 7 and row["prepared_transaction_offset"] == -1
    assert len(record) == RECORD_BYTES_MIN + 1


@pytest.mark.parametrize(
    ("data", "blank"),
    [("00000400cbd43194", True), ("00000400cbd4319400", True), ("00000400daa320a7", False), ("00000400cbd431", True)],
)
def test_a_blank_record_or_too_few_bytes_end_a_segment(data, blank):
    assert is_blank(bytes.fromhex(data)) is blank
