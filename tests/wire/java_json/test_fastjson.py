import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire import vectors

from twinlog.wire import bodies
from twinlog.wire.bodies import MessageQueue, TopicConfig, decode_body, encode_body
from twinlog.wire.errors import BodyError
from twinlog.wire.java_json.budget import DEPTH_MAX
from twinlog.wire.java_json.fastjson import dumps, java_double, loads

JAVA = json.loads((vectors.VECTORS / "class-fastjson-bodies.json").read_text())
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TopicStatsTable", bodies.TopicStats),
        ("ConsumeStats", bodies.ConsumeStats),
        ("ResetOffsetBody", bodies.ResetOffsetBody),
        ("ConsumerOffsetSerializeWrapper", bodies.ConsumerOffsetTable),
        ("ClusterInfo", bodies.ClusterInfo),
        ("DataVersion", None),
        ("TopicConfig", TopicConfig),
        ("HARuntimeInfo", bodies.HaRuntimeInfo),
    ],
)
def test_a_java_body_reads_and_writes_back_to_the_same_text(name, kind):
    text = JAVA[name]
    body = loads(text) if kind is None else decode_body(kind, text.encode())
    assert dumps(body).decode() == text


def test_escapes_are_javas():
    assert dumps(loads(JAVA["escapes"])).decode() == JAVA["escapes"]


def test_a_repeated_object_is_followed_to_its_first_place():
    connection = decode_body(bodies.ConsumerConnection, JAVA["ConsumerConnection_with_ref"].encode())
    assert connection.subscription_table["A"] == connection.subscription_table["B"]


def test_object_keys_are_pairs_in_order_of_their_names():
    assert loads('{{"topic":"T","queueId":1}:7}') == {(("queueId", 1), ("topic", "T")): 7}


def test_integer_keys_are_bare_or_quoted_as_the_reader_needs():
    assert dumps({0: "a", 1: "b"}) == b'{0:"a",1:"b"}'
    assert dumps({0: "a"}, int_keys="quoted") == b'{"0":"a"}'


def test_a_queue_given_as_text_key_is_read_too():
    text = b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}":7}}'
    assert decode_body(bodies.ResetOffsetBody, text).offset_table == {MessageQueue("T", "b", 1): 7}


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a":}', "[1", "{a b}", "'x", '"\\', "nonsense", '{"$ref":"$.x"}'])
def test_broken_text_is_a_body_error(text):
    with pytest.raises(BodyError):
        loads(text)


def test_deep_nesting_is_refused_before_it_costs_anything():
    with pytest.raises(BodyError, match="deeper"):
        loads("{a:" * (DEPTH_MAX + 2))
    with pytest.raises(BodyError, match="deeper"):
        loads("{" * (DEPTH_MAX + 200))


@given(plain)
def test_standard_json_reads_as_every_parser_reads_it(value):
    assert loads(json.dumps(value)) == value


@given(st.text(max_size=60))
def test_garbage_is_a_body_error_and_nothing_else(text):
    with contextlib.suppress(BodyError):
        loads(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_in_javas_form_read_back_to_the_same_number(value):
    assert math.isclose(float(java_double(value)), value, rel_tol=1e-12, abs_tol=0.0)


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0"), (1e10, "1.0E10"), (1.5, "1.5"), (float("nan"), "null")])
def test_doubles_are_written_as_java_writes_them(value, text):
    assert java_double(value) == text


@pytest.mark.parametrize("data", [None, b"", b"[]", b"3", b'{"readQueueNums":4}', b'{"topicName":"T","perm":"x"}'])
def test_a_body_of_another_shape_is_a_body_error_that_names_its_kind(data):
    with pytest.raises(BodyError, match="TopicConfig"):
        decode_body(TopicConfig, data)


def test_numbers_as_text_nulls_and_unknown_members_are_accepted():
    read = decode_body(TopicConfig, b'{"topicName":"T","perm":"4","order":null,"later":1}')
    assert read == TopicConfig(topic_name="T", perm=4)
    assert decode_body(TopicConfig, encode_body(read)) == read
