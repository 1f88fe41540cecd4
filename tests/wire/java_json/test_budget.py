"""What a peer sends becomes a value within limits or an error of this package, whatever it is."""

import contextlib
import json
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.metadata.json_file import decode_json
from twinlog.metadata.offsets import OffsetsFile
from twinlog.wire import bodies
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import HeartbeatData, TopicConfigTable, decode_body
from twinlog.wire.command import FIELDS_MAX, decode_header
from twinlog.wire.compression import decompress
from twinlog.wire.errors import BodyError, FrameError, HeaderError, WireError
from twinlog.wire.fields import decode_fields
from twinlog.wire.frame import BINARY, HEADER_BYTES_MAX, JSON, encode_frame, frame_span
from twinlog.wire.headers import UpdateOffsetHeader
from twinlog.wire.java_json import budget, dialect
from twinlog.wire.java_json.dialect import quote_bare_keys
from twinlog.wire.java_json.fastjson import loads
from twinlog.wire.message import decode_message, decode_messages
from twinlog.wire.properties import decode_properties
from twinlog.wire.values.message_id import parse_offset_message_id

KINDS = bodies.Body.__subclasses__()


def walked(value) -> int:
    """The values that a walk over `value` meets."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(walked, members))


# -- references --------------------------------------------------------------------------------


def test_references_to_a_large_object_are_refused_before_they_are_followed():
    row = b"[" + b",".join([b"1"] * 15_000) + b"]"
    bomb = b'{"x":%b,"clientID":"c","producerDataSet":[%b]}' % (row, b",".join([b'{"$ref":"$.x"}'] * 2_000))
    assert len(bomb) < 64 * 1024
    with pytest.raises(BodyError, match="more than 200000 values"):
        loads(bomb)
    with pytest.raises(BodyError, match="more than 200000 values"):
        decode_body(HeartbeatData, bomb)


def test_references_that_double_twenty_times_are_refused_by_their_count():
    levels = {f"l{n}": [{"$ref": f"$.l{n + 1}"}] * 2 for n in range(40)}
    with pytest.raises(BodyError, match="more than 200000 values"):
        loads(json.dumps({**levels, "l40": [1]}))


def test_an_object_that_is_referred_to_is_shared_and_its_own_references_are_followed():
    value = loads('{"a":{"b":{"$ref":"$.c"}},"c":[1,{"$ref":"$.d[0]"}],"d":[{"e":2}],"f":{"$ref":"$.a"}}')
    assert value["f"] is value["a"]
    assert value == {"a": {"b": [1, {"e": 2}]}, "c": [1, {"e": 2}], "d": [{"e": 2}], "f": {"b": [1, {"e": 2}]}}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":"@"}}',
        '{"a":{"b":{"$ref":".."}}}',
        '{"a":[{"$ref":"$.b"}],"b":[{"$ref":"$.a"}]}',
        '{"a":{"b":{"$ref":"$.a"}}}',
    ],
)
def test_an_object_that_contains_itself_is_refused(text):
    with pytest.raises(BodyError, match="contains the reference"):
        loads(text)


def test_references_do_not_nest_deeper_than_text_may():
    chain = {f"l{n}": [{"$ref": f"$.l{n + 1}"}] for n in range(5_000)}
    with pytest.raises(BodyError, match="nested deeper"):
        loads(json.dumps({**chain, "l5000": 1}))
    backwards = dict(reversed(chain.items()))  # each is measured before it is referred to
    with pytest.raises(BodyError, match="nested deeper"):
        loads(json.dumps({"l5000": 1, **backwards}))


def test_a_body_of_many_topics_may_refer_as_much_as_it_says():
    topics = {f"T{n}": {"topicName": f"T{n}", "attributes": {"$ref": "$.topicConfigTable.T0.x"}} for n in range(60_000)}
    topics["T0"] = {"topicName": "T0", "x": {"a": "b"}, "attributes": {"a": "b"}}
    table = decode_body(TopicConfigTable, json.dumps({"topicConfigTable": topics}).encode()).topic_config_table
    assert len(table) == 60_000 and table["T7"].attributes == {"a": "b"}


# -- the number of values -----------------------------------------------------------------------


def test_a_body_may_hold_100_000_topics_and_not_any_number_of_values():
    row = '"T%06d":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicName":"T%06d","writeQueueNums":8}'
    table = '{"topicConfigTable":{' + ",".join(row % (n, n) for n in range(100_000)) + "}}"
    assert len(decode_body(TopicConfigTable, table.encode()).topic_config_table) == 100_000
    with pytest.raises(BodyError, match="more than 500000 values"):
        decode_body(TopicConfigTable, table.replace("false", "null").encode())
    with pytest.raises(BodyError, match="more than 4000000 values"):
        decode_body(TopicConfigTable, b"[" + b"[]," * 5_000_000 + b"1]")
    with pytest.raises(BodyError, match="more than 500000 values"):
        loads(b"[" + b"[]," * 2_000_000 + b"1]")


def test_javas_dialect_is_read_for_a_limited_number_of_values():
    with pytest.raises(BodyError, match="more than 200000 values"):
        loads("{a:[" + "1," * 200_001 + "]}")
    assert len(loads("{a:[" + "1," * 199_000 + "]}")["a"]) == 199_000
    assert loads("{a:[" + "," * 3_999_00 + "1]}") == {"a": [1]}


def test_bare_keys_of_a_request_are_quoted_for_a_limited_number_of_values(monkeypatch):
    def never(data):
        raise AssertionError

    monkeypatch.setattr(bodies, "quote_bare_keys", never)
    with pytest.raises(BodyError, match="more than 500000 values"):
        decode_body(HeartbeatData, b"{0:1" + b",1:1" * 500_000 + b"}")


def test_statistics_of_very_many_queues_are_read():
    rows = ",".join(f'{{"brokerName":"b","queueId":{n},"topic":"T"}}:{n}' for n in range(60_000))
    found = decode_body(bodies.ResetOffsetBody, ('{"offsetTable":{' + rows + "}}").encode()).offset_table
    assert len(found) == 60_000


def test_bare_keys_of_very_many_offsets_are_read():
    rows = ",".join(f'"T@G{n}":{{0:1,1:2,2:3}}' for n in range(80_000))
    found = decode_body(bodies.ConsumerOffsetTable, ('{"offsetTable":{' + rows + "}}").encode()).offset_table
    assert len(found) == 80_000 and found["T@G7"] == {0: 1, 1: 2, 2: 3}


@given(st.text(st.sampled_from('{,:"\\ 17-[]}a'), max_size=40).map(str.encode))
def test_quoting_bare_keys_changes_nothing_inside_strings(data):
    quoted = quote_bare_keys(data)
    strings = "".join(quoted.decode().split())
    assert strings.replace('"', "") == "".join(data.decode().split()).replace('"', "")
    with contextlib.suppress(ValueError):
        assert json.loads(quoted) == json.loads(data)


def test_bare_keys_are_quoted_wherever_the_text_is_cut(monkeypatch):
    data = ('{"offsetTable":{' + ",".join(f'"T@{n}":{{{n}:1, {n + 1} :2}}' for n in range(50)) + "}}").encode()
    whole = quote_bare_keys(data)
    assert json.loads(whole)["offsetTable"]["T@7"] == {"7": 1, "8": 2}
    for size in range(len(data)):
        monkeypatch.setattr(dialect, "_PIECE_BYTES", size)
        assert quote_bare_keys(data) == whole


def test_quoting_bare_keys_is_linear_in_strings_without_end():
    data = b'{0:"' + b'\\"' * 1_000_000
    assert quote_bare_keys(data) == data.replace(b"0:", b'"0":')


# -- depth --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [budget.DEPTH_MAX + 2, 300, 900, 5_000, 100_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{a:", b"{{"])
def test_no_depth_is_more_than_an_error(depth, opening):
    text = opening * depth + b"1" + {b"[": b"]", b"{{": b":1}:1}"}.get(opening, b"}") * depth
    for inner in (text, b'{"unknown":%b}' % text, b'{"clientID":"c","consumerDataSet":[%b]}' % text):
        with pytest.raises(BodyError):
            loads(inner)
        with pytest.raises(BodyError):
            decode_body(HeartbeatData, inner)
        with pytest.raises(HeaderError):
            decode_header(b'{"code":1,"x":%b}' % inner, JSON)
        with pytest.raises(HeaderError):
            decode_header(b'{"code":1,"extFields":{"a":%b}}' % inner, JSON)


def test_members_that_are_passed_on_are_not_deep_either():
    with pytest.raises(BodyError):
        decode_body(bodies.SubscriptionGroupConfig, b'{"groupRetryPolicy":{"a":%b}}' % (b"[" * 60 + b"]" * 60))
    policy = b'{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
    read = decode_body(bodies.SubscriptionGroupConfig, b'{"groupRetryPolicy":%b}' % policy)
    assert read.group_retry_policy == json.loads(policy)


# -- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "9" * 30, "-" + "9" * 30, "1" + "0" * 5000], ids=len)
def test_integers_have_64_bits(text):
    for data in (text, f"[{text}]", f"{{a:{text}}}", f'{{"a":[{{"b":{text}}}]}}'):
        with pytest.raises(BodyError):
            loads(data)
        with pytest.raises(BodyError):
            loads(data.encode())
    for body in (f'{{"offsetTable":{{"T@G":{{"0":{text}}}}}}}', f'{{"offsetTable":{{"T@G":{{0:{text}}}}}}}'):
        with pytest.raises(BodyError):
            decode_body(bodies.ConsumerOffsetTable, body.encode())
        with pytest.raises((ValueError, WireError)):
            decode_json(body.encode(), OffsetsFile)
    with pytest.raises(BodyError):
        decode_body(bodies.SubscriptionGroupConfig, f'{{"groupRetryPolicy":{{"a":[{text}]}}}}'.encode())
    assert decode_fields(UpdateOffsetHeader, {"commitOffset": text, "queueId": text}) == UpdateOffsetHeader()


def test_the_largest_numbers_of_java_are_read():
    assert loads(f"[{2**63 - 1},{-(2**63)}]") == [2**63 - 1, -(2**63)]
    assert loads(f"{{a:{2**63 - 1},b:{-(2**63)}}}") == {"a": 2**63 - 1, "b": -(2**63)}
    header = decode_fields(UpdateOffsetHeader, {"commitOffset": str(2**63 - 1), "queueId": str(2**31 - 1)})
    assert (header.commit_offset, header.queue_id) == (2**63 - 1, 2**31 - 1)


def test_what_java_keeps_in_an_int_has_32_bits():
    with pytest.raises(BodyError, match="<= 2147483647"):
        decode_body(bodies.TopicConfig, b'{"topicName":"T","readQueueNums":2147483648}')
    with pytest.raises(BodyError, match="<= 2147483647"):
        decode_body(bodies.LockBatchRequest, b'{"mqSet":[{"topic":"T","brokerName":"b","queueId":2147483648}]}')
    assert decode_fields(UpdateOffsetHeader, {"queueId": "2147483648"}).queue_id is None
    for name in ("code", "opaque", "flag", "version"):
        with pytest.raises(HeaderError, match="32"):
            decode_header(b'{"code":1,"opaque":1,"%b":2147483648}' % name.encode(), JSON)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "inf", "nan", "1e999", "1_000", "0x10", "9e400"])
def test_only_numbers_are_numbers(word):
    for data in (word, f"[{word}]", f"{{a:{word}}}", f'{{"a":{word}}}'):
        with pytest.raises(BodyError):
            loads(data)
    with pytest.raises(BodyError):
        decode_body(bodies.TopicStats, f'{{"topicPutTps":{word}}}'.encode())
    with pytest.raises(HeaderError):
        decode_header(f'{{"code":1,"opaque":{word}}}'.encode(), JSON)


# -- headers ------------------------------------------------------------------------------------


def binary_header(count: int) -> bytes:
    fields = b"".join(struct.pack(">h", 6) + b"%06d" % n + struct.pack(">i", 1) + b"v" for n in range(count))
    return struct.pack(">hBhiii", 1, 0, 1, 7, 0, 0) + struct.pack(">i", len(fields)) + fields


def test_headers_have_a_limit_of_fields():
    for count, is_read in ((FIELDS_MAX, True), (FIELDS_MAX + 1, False)):
        fields = {f"{n:06d}": "v" for n in range(count)}
        strict = json.dumps({"code": 1, "opaque": 7, "extFields": fields}).encode()
        tolerant = strict.replace(b'"code": 1', b"code:'1'")
        for header, header_type in ((strict, JSON), (tolerant, JSON), (binary_header(count), BINARY)):
            if is_read:
                assert decode_header(header, header_type).fields == fields
            else:
                with pytest.raises(HeaderError, match="more than 1024 fields"):
                    decode_header(header, header_type)


def test_the_largest_header_of_a_real_client_is_read_and_a_giant_one_refused_at_its_eighth_byte():
    properties = "\x01" * 32767
    header = msgspec.json.encode({"code": 310, "opaque": 1, "extFields": {"i": properties}})
    frame = encode_frame(header, b"body")
    assert frame_span(frame, 0, len(frame)) is not None
    giant = struct.pack(">ii", 15_000_000, HEADER_BYTES_MAX + 1)
    with pytest.raises(FrameError, match=f"header of {HEADER_BYTES_MAX + 1} bytes"):
        frame_span(giant, 0, 8)


# -- any bytes ----------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *b"{}[],:",
        b'"$ref"',
        b'"$.a"',
        b'{"$ref":"$"}',
        b"[" * 70,
        b"{" * 70,
        b"{a:" * 70,
        b"1" * 30,
        b"9" * 5000,
        b"1e999",
        b"NaN",
        b"-Infinity",
        b"'",
        b"\\",
        b'"\\ud800"',
        b'"\xff"',
        b"null",
        b'"a":',
        b'{"a":[]}:',
        "\N{SUPERSCRIPT TWO}".encode(),
    ]
).map(lambda piece: piece if isinstance(piece, bytes) else bytes([piece]))
ANY_BYTES = st.binary(max_size=60) | st.lists(PIECES | st.binary(max_size=3), max_size=20).map(b"".join)


@settings(max_examples=300)
@given(ANY_BYTES)
def test_any_bytes_are_a_value_within_the_budget_or_an_error_of_this_package(data):
    with contextlib.suppress(BodyError):
        assert walked(loads(data)) <= budget.PEER.slow_values_max
    with contextlib.suppress(BodyError):
        loads(data.decode("utf-8", "surrogateescape"))
    for header_type in (JSON, BINARY):
        with contextlib.suppress(HeaderError):
            decode_header(data, header_type)
        with contextlib.suppress(HeaderError):
            decode_header(b'{"code":1,"extFields":{"a":%b}}' % data, JSON)


@given(st.binary(max_size=200), st.integers(0, 0xFFFF))
def test_any_bytes_of_records_batches_and_bodies_are_read_or_an_error_of_this_package(data, flags):
    for decode in (decode_batch, decode_message, decode_messages, lambda body: decompress(body, flags)):
        with contextlib.suppress(WireError):
            decode(data)
    assert isinstance(decode_properties(data), dict)


@given(st.text(max_size=60) | st.text("0123456789abcdef", min_size=32, max_size=32))
def test_any_text_is_a_message_id_or_an_error_of_this_package(text):
    with contextlib.suppress(WireError):
        parse_offset_message_id(text)


@settings(max_examples=60)
@given(st.sampled_from(KINDS), st.data())
def test_any_member_of_any_body_is_a_value_or_a_body_error(kind, data):
    name = data.draw(st.sampled_from(kind.__struct_encode_fields__))
    for text in (data.draw(ANY_BYTES), b'{"%b":%b}' % (name.encode(), data.draw(ANY_BYTES))):
        with contextlib.suppress(BodyError):
            decode_body(kind, text)
        with contextlib.suppress(ValueError, WireError):
            decode_json(text, kind)
