import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire.command import BINARY, JSON, Command, decode_command, decode_header, encode_command, response_to
from twinlog.wire.errors import HeaderError
from twinlog.wire.frame import take_frame

from . import vectors

FRAMES = [name for name in vectors.names() if "lengthField" in vectors.described(name).get("decoded", {})]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
commands = st.builds(
    Command,
    code=st.integers(0, 32767),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    language=st.sampled_from(["JAVA", "GO", "CPP", "NODE_JS"]),
    version=st.integers(0, 32767),
    remark=st.none() | texts,
    fields=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=4),
    body=st.none() | st.binary(min_size=1, max_size=40),
)


def test_there_are_golden_frames():
    assert len(FRAMES) > 90


@pytest.mark.parametrize("name", FRAMES)
def test_a_golden_frame_reads_as_java_reads_it_and_writes_back_to_its_bytes(name):
    golden, expected = vectors.data(name), vectors.described(name)["decoded"]
    frame = take_frame(bytearray(golden))
    assert frame is not None
    command = decode_command(frame)
    assert (command.code, command.opaque, command.flag) == (expected["code"], expected["opaque"], expected["flag"])
    assert (command.version, command.remark) == (expected["version"], expected.get("remark"))
    assert (command.language, command.fields) == (expected["language"], expected.get("extFields"))
    assert encode_command(command, frame.header_type) == golden


@given(commands, st.sampled_from([JSON, BINARY]))
def test_a_command_survives_its_encoding(command, header_type):
    frame = take_frame(bytearray(encode_command(command, header_type)))
    assert frame is not None and decode_command(frame) == command


@given(st.binary(max_size=200), st.sampled_from([JSON, BINARY]))
def test_a_garbage_header_is_a_header_error_and_nothing_else(data, header_type):
    with contextlib.suppress(HeaderError):
        decode_header(data, header_type)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"{}", Command(0, 0, version=0)),
        (b'{"code":"105","opaque":"7"}\n', Command(105, 7, version=0)),
        (b"{code:105, 'opaque':7, extra:[1,{}]}", Command(105, 7, version=0)),
        (b'{"code":1,"opaque":1,"language":"KLINGON"}', Command(1, 1, language=None, version=0)),
        (b'{"code":1,"opaque":1,"remark":"","extFields":null}', Command(1, 1, version=0, remark="")),
        (
            b'{"code":11,"opaque":1,"extFields":{"queueId":3,"lo":true,"x":1.5}}',
            Command(11, 1, version=0, fields={"queueId": "3", "lo": "true", "x": "1.5"}),
        ),
    ],
)
def test_what_old_clients_write_is_read_as_java_reads_it(header, expected):
    assert decode_header(header, JSON) == expected


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"nonsense", b'{"code":1,"opaque":2147483648}', b'{"code":{}}', b'{"code":1,"extFields":[1]}'],
)
def test_headers_that_java_refuses_are_refused(header):
    with pytest.raises(HeaderError):
        decode_header(header, JSON)


def test_codes_above_16_bits_do_not_survive_the_binary_header():
    frame = take_frame(bytearray(encode_command(Command(200050, 1), BINARY)))
    assert frame is not None and decode_command(frame).code == 3442


def test_an_answer_carries_the_opaque_of_its_request_and_the_response_bit():
    answer = response_to(42, 17, "no such topic")
    assert (answer.opaque, answer.is_response, answer.is_oneway, answer.remark) == (42, True, False, "no such topic")


@pytest.mark.parametrize("length_at", [13, 17])
def test_a_binary_length_beyond_the_header_is_refused(length_at):
    header = bytearray(21)
    header[length_at] = 0x7F
    with pytest.raises(HeaderError):
        decode_header(bytes(header), BINARY)


@pytest.mark.parametrize("name", ["code", "opaque", "flag", "language", "version", "remark", "extFields"])
@pytest.mark.parametrize("value", ["[]", "{}", "[[]]", '{"a":[]}', "1e999", "NaN", "1" * 5000, "true", "1.5", "'a'"])
def test_a_member_of_any_type_is_read_or_refused(name, value):
    with contextlib.suppress(HeaderError):
        decode_header(f'{{"code":1,"opaque":1,"{name}":{value}}}'.encode(), JSON)
