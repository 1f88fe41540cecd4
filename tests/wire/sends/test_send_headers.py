"""Headers of sends decode to the same values in every spelling, and as the plain decoder reads them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.running import SEND_FIELDS
from tests.broker.sends.spellings import STYLES, sends, spell

from twinlog.wire.command import FIELDS_MAX, Command, decode_header, encode_header
from twinlog.wire.errors import HeaderError
from twinlog.wire.fields import decode_fields, read_int
from twinlog.wire.frame import BINARY, JSON, take_frame
from twinlog.wire.headers import SendHeader, SendHeaderV2
from twinlog.wire.sends.binary_sends import BinarySends
from twinlog.wire.sends.send_headers import decode_json_send, decode_json_sends

NUMBERS = ("default_topic_queue_nums", "queue_id", "sys_flag", "flag", "reconsume_times")


def field(name: bytes, value: bytes) -> bytes:
    """A field of a binary header."""
    return len(name).to_bytes(2, "big") + name + len(value).to_bytes(4, "big") + value


def flat_by_definition(header: bytes, header_type: int):
    """(opaque, flag, topic, numbers, batch, born timestamp, properties) as `send` gets them; None if one is missing."""
    command = decode_header(header, header_type)
    assert command.code in (10, 310, 320)
    fields = decode_fields(SendHeader if command.code == 10 else SendHeaderV2, command.fields)
    required = ("producer_group", "topic", "default_topic", "born_timestamp")
    if any(getattr(fields, name) is None for name in required):
        return None
    numbers = [getattr(fields, name) for name in NUMBERS]
    return command.opaque, command.flag, fields.topic, numbers, fields.batch, fields.born_timestamp, fields.properties


def check(flat, header: bytes, header_type: int) -> None:
    """What was decoded quickly is what the plain decoder finds."""
    if flat is None:
        return
    opaque, flag, (topic, *numbers, batch), born, properties = flat
    read = [read_int(str(number)) for number in numbers]
    expected = flat_by_definition(header, header_type)
    assert expected is not None
    by_definition = [*expected]
    if by_definition[3][4] is None and read[4] in (0, None):  # no reconsume times count as 0
        by_definition[3][4] = read[4]
    if by_definition[4] is None:
        by_definition[4] = False
    by_definition[6] = by_definition[6] or ""
    assert [opaque, flag, topic, read, str(batch).lower() == "true", born, properties] == by_definition


@settings(max_examples=300, deadline=None)
@given(st.lists(sends, min_size=1, max_size=4), st.integers(0, 2**16), st.integers(0, 255), st.booleans())
def test_every_spelling_means_what_the_plain_decoder_reads(frames, place, byte, damaged):
    binary = BinarySends()
    for data in [*frames, *frames]:  # the second time from the cache
        frame = take_frame(bytearray(data))
        header = bytearray(frame.header)
        if damaged:
            header[place % len(header)] = byte
        flat = None
        with contextlib.suppress(HeaderError):
            flat = (decode_json_send if frame.header_type == JSON else binary.decode)(bytes(header))
            check(flat, bytes(header), frame.header_type)
            continue
        assert flat is None, "the plain decoder refuses it"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(sends.filter(lambda frame: frame[4] == JSON), min_size=1, max_size=6),
    st.integers(0, 40),
    st.integers(0, 2**16),
    st.integers(0, 255),
)
def test_headers_that_are_decoded_together_are_as_those_decoded_one_by_one(frames, damaged, place, byte):
    headers = [bytearray(take_frame(bytearray(data)).header) for data in frames]
    if damaged < len(headers):
        headers[damaged][place % len(headers[damaged])] = byte
    headers = [bytes(header) for header in headers]
    one_by_one = [decode_json_sends([header]) for header in headers]
    count = one_by_one.index([]) if [] in one_by_one else len(headers)
    assert decode_json_sends(headers) == [found for (found,) in one_by_one[:count]]
    for header, found in zip(headers, one_by_one, strict=True):
        flat = decode_json_send(header)
        assert flat is None or (flat[0], flat[2][0], flat[4]) == (
            found[0].opaque,
            found[0].extFields.topic,
            found[0].extFields.properties,
        )


@pytest.mark.parametrize("style", STYLES)
def test_the_usual_header_of_every_style_is_decoded_quickly(style):
    command = Command(310, 17, 2, fields={**SEND_FIELDS, "i": "UNIQ_KEY\x01K\x02colour\x01中\x02"}, body=b"x")
    frame = take_frame(bytearray(spell(style, command, list(range(16, 0, -1)))))
    flat = (decode_json_send if frame.header_type == JSON else BinarySends().decode)(frame.header)
    assert flat is not None
    opaque, flag, (topic, *numbers, batch), born, properties = flat
    assert (opaque, flag, topic, born, properties) == (17, 2, "T", 1700000000000, "UNIQ_KEY\x01K\x02colour\x01中\x02")
    assert [int(number) for number in numbers] == [4, 0, 0, 0, 0]
    assert batch == "false"


@pytest.mark.parametrize("header_type", [JSON, BINARY])
@pytest.mark.parametrize("code", [11, 34, 311, 100])
def test_other_requests_are_not_sends(header_type, code):
    header = encode_header(Command(code, 1, fields={**SEND_FIELDS, "code": "310"}), header_type)
    assert (decode_json_send if header_type == JSON else BinarySends().decode)(header) is None


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_a_header_with_too_many_fields_is_left_to_the_plain_decoder(header_type):
    fields = {**SEND_FIELDS, **{f"x{number}": "1" for number in range(FIELDS_MAX)}}
    header = encode_header(Command(310, 1, fields=fields), header_type)
    assert (decode_json_send if header_type == JSON else BinarySends().decode)(header) is None


@pytest.mark.parametrize(
    "added",
    [
        field(b"\xc3", b"1") + field(b"\xa9", b"2"),  # one letter, cut in two names
        field(b"x", b"\xff") + field(b"x", b"1"),
        field(b"x", b"\xff"),
    ],
)
def test_fields_whose_text_is_broken_are_left_to_the_plain_decoder(added):
    header = bytearray(encode_header(Command(310, 1, fields={**SEND_FIELDS, "i": "UNIQ_KEY\x01K\x02"}), BINARY))
    assert BinarySends().decode(bytes(header)) is not None
    header[17:21] = (int.from_bytes(header[17:21], "big") + len(added)).to_bytes(4, "big")
    header += added
    with pytest.raises(HeaderError):
        decode_header(bytes(header), BINARY)
    assert BinarySends().decode(bytes(header)) is None


def test_fields_in_a_new_order_each_time_fill_no_cache(monkeypatch):
    monkeypatch.setattr("twinlog.wire.sends.binary_sends._LAYOUTS_MAX", 4)
    binary, names = BinarySends(), list(SEND_FIELDS)
    for number in range(40):
        order = names[number % len(names) :] + names[: number % len(names)]
        fields = {name: SEND_FIELDS[name] for name in order} | {"g": "1700000000000", "i": "UNIQ_KEY\x01K\x02"}
        flat = binary.decode(encode_header(Command(310, number, fields=fields), BINARY))
        assert flat is not None and flat[0] == number
        assert len(binary._layouts) <= 4
