import contextlib
import random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire import compression
from twinlog.wire.batch import BatchElement, decode_batch, encode_batch
from twinlog.wire.compression import compress, decompress
from twinlog.wire.errors import BodyError, CompressionError, PropertiesError, RecordError, WireError
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import PullHeader, SendHeader, SendHeaderV2
from twinlog.wire.java_text import java_hash, utf16_length
from twinlog.wire.message import Message, decode_message, decode_messages, encode_message
from twinlog.wire.properties import check_pairs, decode_properties, encode_properties
from twinlog.wire.values import sys_flag
from twinlog.wire.values.filter_expression import parse_tags
from twinlog.wire.values.message_id import UniqueIds, offset_message_id, parse_offset_message_id

from . import vectors

FLAGS_ZSTD = sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZSTD
RECORDS = vectors.names(kind="message")
values = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
hosts = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))
longs = st.integers(-(2**63), 2**63 - 1)
messages = st.builds(
    Message,
    topic=st.text("abcXYZ_-%", min_size=1, max_size=200),
    body=st.binary(max_size=100),
    queue_id=st.integers(0, 1000),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=longs,
    physical_offset=longs,
    sys_flag=st.sampled_from([0, 1, 8, 0x301]),
    born_timestamp=longs,
    born_host=hosts,
    store_timestamp=longs,
    store_host=hosts,
    reconsume_times=st.integers(0, 100),
    prepared_transaction_offset=longs,
    properties=st.dictionaries(values, values, max_size=4),
)


@pytest.mark.parametrize("name", RECORDS)
def test_a_golden_record_reads_as_java_reads_it_and_writes_back_to_its_bytes(name):
    golden = vectors.data(name)
    message = decode_message(golden)
    assert encode_message(message) == golden
    assert message.store_size == len(golden)


@given(messages)
def test_a_message_survives_its_record(message):
    again = decode_message(encode_message(message))
    message.sys_flag = again.sys_flag
    message.body_crc, message.store_size, message.version = again.body_crc, again.store_size, again.version
    assert again == message


@given(messages, st.data())
def test_a_record_cut_anywhere_is_a_record_error(message, data):
    record = encode_message(message)
    with pytest.raises(RecordError):
        decode_message(record[: data.draw(st.integers(0, len(record) - 1))])


@given(st.binary(max_size=300))
def test_garbage_is_a_record_error_and_nothing_else(data):
    with contextlib.suppress(RecordError):
        decode_message(b"\x00\x00\x00\x7f\xda\xa3\x20\xa7" + data)


def test_a_flipped_body_bit_is_noticed():
    record = bytearray(encode_message(Message(topic="T", body=b"hello")))
    record[88] ^= 1
    with pytest.raises(RecordError, match="CRC"):
        decode_message(record)


def test_a_pull_body_holds_messages_back_to_back():
    first, second = Message(topic="T", body=b"1"), Message(topic="T", body=b"22")
    read = decode_messages(encode_message(first) + encode_message(second))
    assert [m.body for m in read] == [b"1", b"22"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a\x011\x02b\x012\x02", {"a": "1", "b": "2"}),
        ("a\x011\x02b\x012", {"a": "1", "b": "2"}),
        ("a\x01\x02\x011\x02\x02ab\x02", {}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x011\x012\x02", {"a": "1\x012"}),
    ],
)
def test_properties_are_split_as_java_splits_them(text, pairs):
    assert decode_properties(text) == decode_properties(text.encode()) == pairs


@given(st.dictionaries(values, values))
def test_properties_survive_their_text(pairs):
    check_pairs(pairs)
    assert decode_properties(encode_properties(pairs)) == pairs


@pytest.mark.parametrize("pairs", [{"": "x"}, {"a\x01": "x"}, {"a": "x\x02y"}])
def test_properties_that_cannot_be_written_are_named(pairs):
    with pytest.raises(PropertiesError):
        check_pairs(pairs)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_survives_compression_and_a_bomb_is_stopped(kind):
    body = b"twin" * 50_000
    packed, flags = compress(body, kind)
    assert len(packed) < 2000 and decompress(packed, flags) == body
    with pytest.raises(CompressionError, match="bomb"):
        decompress(packed, flags, bytes_max=1000)
    with pytest.raises(CompressionError):
        decompress(b"not compressed at all", flags)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_compressed_body_that_was_cut_anywhere_is_an_error_and_never_a_shorter_body(kind):
    packed, flags = compress(bytes(range(256)) * 2, kind)
    for size in range(len(packed)):
        with pytest.raises(CompressionError):
            decompress(packed[:size], flags)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("body", [b"a" * 300_000, random.Random(7).randbytes(300_000), b"tea " * 90_000])
def test_a_zstd_stream_without_a_content_size_is_whole_only_with_its_last_byte(body, checksum):
    writer = zstandard.ZstdCompressor(write_checksum=checksum).compressobj()
    packed = writer.compress(body) + writer.flush()  # as Java writes it
    assert decompress(packed, FLAGS_ZSTD) == body
    for size in (0, 1, 5, 9, len(packed) // 2, len(packed) - 4, len(packed) - 1):
        with pytest.raises(CompressionError):
            decompress(packed[:size], FLAGS_ZSTD)


def test_a_zstd_body_of_empty_blocks_is_refused_after_a_limited_number_of_them(monkeypatch):
    frame = b"\x28\xb5\x2f\xfd\x00\x58"  # magic, no options, a window of 2 MiB
    assert decompress(frame + b"\x00\x00\x00" * 1000 + b"\x01\x00\x00", FLAGS_ZSTD) == b""
    monkeypatch.setattr(compression, "_ZSTD_BLOCKS_MAX", 1000)
    with pytest.raises(CompressionError, match="ends before its stream"):
        decompress(frame + b"\x00\x00\x00" * 1000 + b"\x01\x00\x00", FLAGS_ZSTD)


def test_old_clients_mean_zlib_when_they_name_no_compression():
    packed, _ = compress(b"old", "zlib")
    assert decompress(packed, sys_flag.COMPRESSED) == b"old"
    assert decompress(b"as is", 0) == b"as is"


def test_a_batch_survives_and_matches_java():
    golden = vectors.data("class-batch-body")
    elements = decode_batch(golden)
    assert len(elements) == 2 and encode_batch(elements) == golden


@given(st.lists(st.builds(BatchElement, st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 9)), max_size=4))
def test_a_batch_cut_anywhere_is_a_body_error(elements):
    data = encode_batch(elements)
    assert decode_batch(data) == elements
    if data:
        with pytest.raises(BodyError):
            decode_batch(data[:-1])


def test_offset_ids_name_host_port_and_place():
    assert offset_message_id("127.0.0.1", 19911, 0) == "7F00000100004DC70000000000000000"
    assert parse_offset_message_id("7F00000100004DC7000000000000002A") == ("127.0.0.1", 19911, 42)
    assert len(offset_message_id("::1", 1, 1)) == 56
    for bad in ("", "xyz", "7F" * 15):
        with pytest.raises(WireError, match="32 or 56"):
            parse_offset_message_id(bad)


def test_unique_ids_differ_and_are_32_digits():
    ids = UniqueIds("10.1.2.3", seed=7)
    made = {ids.next(1_700_000_000_000) for _ in range(1000)}
    assert len(made) == 1000 and all(len(text) == 32 and text.startswith("0A010203") for text in made)


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("TagA", 2598919), ("TagB", 2598920), ("polygenelubricants", -(2**31))]
)
def test_text_hashes_as_in_java(text, code):
    assert java_hash(text) == code


def test_java_counts_utf16_units():
    assert utf16_length("a\N{GRINNING FACE}") == 3
    assert java_hash("\N{GRINNING FACE}") == java_hash("\ud83d\ude00")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [(None, None), ("", None), (" * ", None), ("A || B", {"A", "B"}), ("A", {"A"}), ("||", None)],
)
def test_tag_expressions(expression, tags):
    assert parse_tags(expression) == tags


def test_a_header_reads_as_leniently_as_java():
    fields = {"topic": "T", "queueId": "x", "queueOffset": "9", "bname": "b"}
    header = decode_fields(PullHeader, fields)
    assert (header.topic, header.queue_id, header.queue_offset, header.broker_name) == ("T", None, 9, "b")
    assert encode_fields(header) == {"topic": "T", "queueOffset": "9", "bname": "b"}
    assert decode_fields(PullHeader, None) == PullHeader()


def test_short_and_long_send_headers_carry_the_same():
    long = decode_fields(SendHeader, {"topic": "T", "batch": "1", "unitMode": "TRUE"})
    short = decode_fields(SendHeaderV2, {"b": "T", "m": "1", "k": "TRUE"})
    # C++ says batch=1, which Java does not read as true.
    assert (long.batch, long.unit_mode, short.batch, short.unit_mode) == (False, True, False, True)
    assert encode_fields(short) == {"b": "T", "m": "false", "k": "true"}
