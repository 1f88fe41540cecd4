"""What waits is read and delivered as the plain codec would do it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.stored import stored_context

from twinlog.broker.deferred.parked_record import ParkedRecord, decode_parked, delivery, parked_at
from twinlog.broker.sends.parking import redelivery
from twinlog.store.log.append import Draft
from twinlog.store.property_scan import dispatch_properties
from twinlog.wire.errors import RecordError
from twinlog.wire.java_text import tags_code
from twinlog.wire.message import Message, decode_message, encode_message
from twinlog.wire.properties import encode_properties

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "a", "é"])
VALUES = st.sampled_from([b"", b"x", b"T1", b"k1 k2", b"\xc3\xa9", b"\xff", b"with\x01end"])
TEXTS = st.lists(st.tuples(NAMES.map(str.encode), VALUES).map(b"\x01".join), max_size=6).map(b"\x02".join)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["T", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 127, "t" * 130, "é"]),
    body=st.binary(max_size=40),
    queue_id=st.integers(0, 9),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, 2**40),
    physical_offset=st.integers(0, 2**40),
    sys_flag=st.integers(0, 0xF),
    born_timestamp=st.integers(0, 2**45),
    born_host=st.sampled_from([("10.0.0.1", 4711), ("::1", 80)]),
    store_host=st.sampled_from([("10.0.0.1", 10911), ("::2", 80)]),
    reconsume_times=st.integers(0, 20),
)


def with_text(message: Message, text: bytes) -> bytes:
    """The record of `message` with these properties, which need not be well formed."""
    message.properties = {}
    record = bytearray(encode_message(message))[:-2] + len(text).to_bytes(2, "big") + text
    record[:4] = len(record).to_bytes(4, "big")
    return bytes(record)


def check(parked: ParkedRecord, plain: Message) -> None:
    for name in ParkedRecord.__struct_fields__:
        if name != "text":
            assert getattr(parked, name) == getattr(plain, name), name
    wanted = redelivery(plain, "U", 3)
    code, keys, unique_key = dispatch_properties(wanted.properties)[:3]
    wanted.found = (tags_code(code), keys, unique_key)
    assert delivery(parked, "U", 3) == wanted


@given(MESSAGES, TEXTS, st.sampled_from([b"", b"\x02"]))
def test_a_record_is_read_and_written_again_as_the_plain_codec_does(message, text, end):
    record = with_text(message, text + end)
    parked = decode_parked(memoryview(record))
    if parked is None:
        assert ":" in message.born_host[0] + message.store_host[0] or len(message.topic) > 127
    else:
        check(parked, decode_message(record))


@given(MESSAGES, TEXTS, st.data())
def test_a_damaged_record_is_left_to_the_plain_codec(message, text, data):
    record = bytearray(with_text(message, text))
    if data.draw(st.booleans()):
        del record[data.draw(st.integers(0, len(record) - 1)) :]
    else:
        record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    parked = decode_parked(memoryview(record))
    if parked is not None:
        check(parked, decode_message(record))
    else:
        with contextlib.suppress(RecordError):
            decode_message(record)


@pytest.mark.parametrize("host", ["10.0.0.1", "::1"])
def test_a_record_in_a_store_is_found_whatever_its_hosts_are(tmp_path, host):
    with stored_context(tmp_path) as ctx:
        stored = ctx.store.append(Draft("T", 1, b"body", encode_properties({"TAGS": "t"}), (host, 1)))
        ctx.store.append(Draft("T", 1, b"next"))
        for size in (None, stored.size):
            parked, plain = (
                parked_at(ctx.store, stored.physical_offset, size),
                ctx.store.message_at(stored.physical_offset),
            )
            assert parked is not None
            assert plain is not None
            check(parked, plain)
        assert parked_at(ctx.store, stored.physical_offset + 4) is None
        assert parked_at(ctx.store, ctx.store.log_end) is None
