"""The fast walk agrees with the plain decoder, on Java's logs and on damaged ones."""

import hashlib
import json
import mmap
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.golden import VECTORS, unpack

from twinlog.store.delay_levels import DelayLevels
from twinlog.store.scan.replay import requests_of
from twinlog.store.scan.scan import find_record, scan
from twinlog.store.scan.stop import StopReason
from twinlog.store.topic_name import is_topic
from twinlog.wire.errors import RecordError
from twinlog.wire.message import Message, decode_message, encode_message

MANIFESTS = {
    "normal": "manifest.json",
    "crash": "manifest-crash.json",
    "cqext": "manifest-cqext.json",
    "pcrc": "manifest-pcrc.json",
}


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_record_of_a_java_log_is_read(name, tmp_path):
    manifest = json.loads((VECTORS / MANIFESTS[name]).read_text())
    expected = [one for one in manifest["commitLog"]["records"] if one["magic"] != "0xCBD43194"]
    found = 0
    for path in sorted((unpack(name, tmp_path) / "commitlog").iterdir()):
        for batch in scan(mapped(path), 0, 1 << 20, int(path.name), check_record_crc=name == "pcrc"):
            for row, request in enumerate(requests_of(batch, DelayLevels())):
                record = expected[found]
                at, size = int(batch.position[row]), int(batch.size[row])
                assert hashlib.sha256(batch.buffer[at : at + size]).hexdigest() == record["recordSha256"]
                assert request.topic == record["topic"]
                assert request.physical_offset == record["offset"]
                assert request.store_timestamp == record["storeTimestamp"]
                assert int(batch.queue_offset[row]) == record["queueOffset"]
                assert int(batch.body_length[row]) == record["bodyLength"]
                assert int(batch.born_timestamp[row]) == record["bornTimestamp"]
                assert int(batch.reconsume_times[row]) == record["reconsumeTimes"]
                assert request.properties == record["properties"]
                dispatch = record["dispatch"]
                assert request.tags_code == dispatch["tagsCode"]
                assert (request.queue_offset, request.batch_size) == (dispatch["msgBaseOffset"], dispatch["batchSize"])
                assert (request.keys, request.uniq_key) == (dispatch.get("keys", ""), dispatch.get("uniqKey"))
                found += 1
    assert found == len(expected)


messages = st.builds(
    Message,
    topic=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20),
    body=st.binary(max_size=60),
    queue_id=st.integers(0, 9),
    queue_offset=st.integers(0, 2**40),
    sys_flag=st.sampled_from([0, 1, 8]),
    born_host=st.sampled_from([("1.2.3.4", 5), ("::1", 6)]),
    store_host=st.sampled_from([("1.2.3.4", 5), ("fe80::1", 6)]),
    store_timestamp=st.integers(1, 2**50),
    properties=st.dictionaries(st.sampled_from("abc"), st.just("v")),
)


def encode_log(made):
    log = bytearray()
    for message in made:
        message.physical_offset = 1000 + len(log)
        log += encode_message(message)
    return log


def plain_walk(log):
    """What the wire package's decoder makes of the same bytes."""
    found, at = [], 0
    while at < len(log):
        try:
            message = decode_message(log, at)
        except RecordError:
            break
        if message.physical_offset != 1000 + at or not is_topic(message.topic):
            break
        found.append((at, message))
        at += message.store_size
    return found


@settings(max_examples=200, deadline=None)
@given(
    made=st.lists(messages, min_size=1, max_size=6),
    damage=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 5000),
    batch_records=st.sampled_from([1, 2, 8192]),
)
def test_the_walk_finds_exactly_what_the_plain_decoder_finds(made, damage, cut, batch_records):
    log = encode_log(made)
    for at, byte in damage:
        log[at % len(log)] = byte
    log = bytes(log[: len(log) - cut % len(log)])
    expected = plain_walk(log)
    rows = []
    for batch in scan(log, 0, len(log), 1000, batch_records=batch_records):
        for row in range(len(batch)):
            body_at = int(batch.body_at[row])
            rows.append(
                (
                    int(batch.position[row]),
                    batch.topics[int(batch.topic_number[row])],
                    log[body_at : body_at + int(batch.body_length[row])],
                    int(batch.queue_id[row]),
                    int(batch.queue_offset[row]),
                    int(batch.store_timestamp[row]),
                    int(batch.size[row]),
                )
            )
    assert rows == [
        (at, one.topic, one.body, one.queue_id, one.queue_offset, one.store_timestamp, one.store_size)
        for at, one in expected
    ]


@given(st.binary(max_size=400))
def test_garbage_ends_a_walk_and_nothing_else(data):
    *_, last = scan(data, 0, len(data), 0)
    assert last.stop is not None


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (4, b"\xff", StopReason.MAGIC),
        (0, b"\0\0\0\x10", StopReason.SIZE),
        (0, b"\x7f", StopReason.SHORT),
        (30, b"\x01", StopReason.OFFSET),
        (84, b"\0\0\0\x63", StopReason.LENGTHS),
        (8, b"\x01", StopReason.CRC),
        (94, b"\xff", StopReason.TOPIC),
        (93, b"../..", StopReason.TOPIC),
        (94, b"a\0b", StopReason.TOPIC),
    ],
)
def test_a_stop_says_what_is_wrong(at, value, reason):
    log = encode_log([Message(topic="Topic", body=b"body")])
    log[at : at + len(value)] = value
    (batch,) = scan(bytes(log), 0, len(log), 1000)
    assert (len(batch), batch.stop.position, batch.stop.reason) == (0, 0, reason)


def test_the_next_record_is_found_behind_damage_and_stale_ones_are_not():
    log = encode_log([Message(topic="T", body=b"b" * 50, store_timestamp=stamp) for stamp in (10, 20, 30)])
    size = len(log) // 3
    log[3:50] = b"\xda\xa3\x20\xa7" * 11 + b"zzz"
    data = bytes(log)
    assert find_record(data, 1, len(log), len(log), 1000) == size
    assert find_record(data, 1, len(log), len(log), 1000, timestamp_min=25) == 2 * size
    assert find_record(data, 1, len(log), len(log), 1000, timestamp_min=31) is None
    assert find_record(data, 1, len(log), len(log), 999) is None  # the same bytes at another place of the log


def test_body_crc_has_its_sign_bit_cleared_as_java_writes_it():
    body = next(bytes([n]) for n in range(256) if zlib.crc32(bytes([n])) & 0x80000000)
    log = bytes(encode_log([Message(topic="T", body=body)]))
    assert struct.unpack_from(">i", log, 8)[0] >= 0
    (batch,) = scan(log, 0, len(log), 1000)
    assert len(batch) == 1


@pytest.mark.parametrize("damaged", [0, 7, 39])
def test_a_damaged_body_is_found_in_a_run_of_records_of_one_size(damaged):
    log = encode_log([Message(topic="Topic", body=bytes([number]) * 100) for number in range(40)])
    size = len(log) // 40
    log[damaged * size + 100] ^= 1
    (batch,) = scan(bytes(log), 0, len(log), 1000)
    assert (len(batch), batch.stop.position, batch.stop.reason) == (damaged, damaged * size, StopReason.CRC)
