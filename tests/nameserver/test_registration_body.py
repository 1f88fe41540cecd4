import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.nameserver import registration_body
from twinlog.nameserver.registration_body import InflatesTooFar, RegisteredTopic, body_crc32, decode_registration
from twinlog.wire.bodies import DataVersion
from twinlog.wire.errors import BodyError, WireError

from . import vectors


def part(text):
    return struct.pack(">i", len(text.encode())) + text.encode()


def compressed(*topics, count=None, mappings=()):
    head = part('{"counter":3,"stateVersion":1,"timestamp":2}') + struct.pack(
        ">i", len(topics) if count is None else count
    )
    tail = part('["f:1"]') + struct.pack(">i", len(mappings)) + b"".join(part(one) for one in mappings)
    return zlib.compress(head + b"".join(part(topic) for topic in topics) + tail, 9)


def test_the_body_of_a_real_broker_gives_its_topics_and_version():
    request = vectors.command("wire-register-broker-req")
    body = decode_registration(request.body, version=request.version, compressed=False)
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.topic_config_table["TBW102"].perm == 7
    assert wrapper.topic_config_table["BenchmarkTest"].read_queue_nums == 1024
    assert wrapper.data_version == DataVersion(0, 1794727427753, 0)
    assert body.filter_server_list == []
    assert body_crc32(request.body) == int(request.fields["bodyCrc32"])


def test_the_compressed_body_of_the_real_class_is_read():
    body = decode_registration(vectors.data("class-register-body-compressed"), version=479, compressed=True)
    assert body.topic_config_serialize_wrapper.topic_config_table == {"TopicTest": RegisteredTopic(4, 4, 6, 0)}
    assert body.topic_config_serialize_wrapper.data_version == DataVersion(0, 1700000000000, 3)


def test_attributes_and_mappings_of_a_compressed_body_are_optional():
    data = compressed("A 1 2 6 SINGLE_TAG", mappings=['{"topic":"A","bname":"b"}'])
    wrapper = decode_registration(data, version=479, compressed=True).topic_config_serialize_wrapper
    assert wrapper.topic_config_table["A"].write_queue_nums == 2
    assert wrapper.topic_queue_mapping_info_map == {"A": {"topic": "A", "bname": "b"}}
    old = decode_registration(data, version=412, compressed=True).topic_config_serialize_wrapper
    assert old.topic_queue_mapping_info_map is None


def test_a_broker_before_version_37_sends_the_wrapper_alone():
    data = b'{"dataVersion":{"counter":5,"timestamp":6},"topicConfigTable":{"T":{"topicName":"T"}}}'
    body = decode_registration(data, version=36, compressed=False)
    assert body.topic_config_serialize_wrapper.data_version == DataVersion(0, 6, 5)
    assert body.topic_config_serialize_wrapper.topic_config_table["T"].read_queue_nums == 16
    assert body.filter_server_list is None


def test_no_body_registers_no_topics():
    body = decode_registration(None, version=479, compressed=False)
    assert body.topic_config_serialize_wrapper.topic_config_table == {}
    assert body.topic_config_serialize_wrapper.data_version == DataVersion()


@pytest.mark.parametrize(
    "data",
    [
        b"not zlib",
        zlib.compress(b""),
        compressed("A 1 2")[:-3],
        compressed("A 1 2"),
        compressed("A x 2 6 SINGLE_TAG"),
        compressed(count=-1),
        compressed(count=1_000_000_000),
        compressed(mappings=["[]"]),
        zlib.compress(part("{}") + struct.pack(">i", 0) + part("{}") + struct.pack(">i", 0)),
        zlib.compress(part("\ud800".encode("utf-16-le", "surrogatepass").decode("latin-1"))[:6] + b"\xff" * 9),
    ],
)
def test_a_broken_compressed_body_is_a_body_error(data):
    with pytest.raises(BodyError):
        decode_registration(data, version=479, compressed=True)


def test_a_compressed_body_cannot_grow_without_limit():
    with pytest.raises(InflatesTooFar, match="grows beyond 1000 bytes"):
        decode_registration(zlib.compress(b"0" * 100_000), version=479, compressed=True, inflated_max=1000)


def test_a_compressed_body_of_100_000_topics_is_read_and_one_of_a_million_refused(monkeypatch):
    many = compressed(*(f"topic-{n:06d} 8 8 6 SINGLE_TAG {{}}" for n in range(100_000)))
    wrapper = decode_registration(many, version=479, compressed=True).topic_config_serialize_wrapper
    assert len(wrapper.topic_config_table) == 100_000
    read = []
    monkeypatch.setattr(registration_body, "_topic", read.append)
    with pytest.raises(BodyError, match="a registration of 1000000 topics; one broker may register 500000"):
        decode_registration(compressed(*["A 1 1 6 S"] * 1_000_000), version=479, compressed=True)
    assert not read


def test_a_body_of_100_000_topics_may_have_a_mapping_with_bare_keys():
    row = '"topic-%06d":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"writeQueueNums":8,"topicSysFlag":0}'
    topics = ",".join(row % number for number in range(100_000))
    mappings = '{"T":{"bname":"b","currIdMap":{0:0,1:1},"epoch":0,"topic":"T","totalQueues":2}}'
    table = f'{{"topicConfigTable":{{{topics}}},"topicQueueMappingInfoMap":{mappings}}}'
    body = f'{{"topicConfigSerializeWrapper":{table}}}'.encode()
    wrapper = decode_registration(body, version=479, compressed=False).topic_config_serialize_wrapper
    assert len(wrapper.topic_config_table) == 100_000
    assert wrapper.topic_queue_mapping_info_map["T"]["currIdMap"] == {"0": 0, "1": 1}


def test_the_json_form_has_the_same_limit_of_topics(monkeypatch):
    monkeypatch.setattr(registration_body, "TOPICS_MAX", 2)
    topics = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{},"B":{},"C":{}}}}'
    with pytest.raises(BodyError, match="of 3 topics"):
        decode_registration(topics, version=479, compressed=False)
    with pytest.raises(BodyError, match="of 3 topics"):
        decode_registration(topics[len(b'{"topicConfigSerializeWrapper":') : -1], version=36, compressed=False)


def test_the_mappings_of_a_compressed_body_share_one_budget():
    one = '{"topic":"A","x":[' + ",".join(["1"] * 190_000) + "]}"
    assert decode_registration(compressed(mappings=[one] * 2), version=479, compressed=True)
    with pytest.raises(BodyError, match="more than 4000000 values"):
        decode_registration(compressed(mappings=[one] * 25), version=479, compressed=True)


@pytest.mark.parametrize("number", ["2147483648", "-2147483649", "9" * 30, "9" * 5000])
def test_numbers_of_a_topic_have_32_bits(number):
    with pytest.raises(BodyError) as caught:
        decode_registration(compressed(f"A 1 {number} 6 SINGLE_TAG"), version=479, compressed=True)
    assert len(str(caught.value)) < 300
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{"A":{{"perm":{number}}}}}}}}}'
    with pytest.raises(BodyError):
        decode_registration(body.encode(), version=479, compressed=False)


@given(st.binary(), st.booleans(), st.sampled_from([0, 400, 479]))
def test_garbage_is_a_wire_error_and_nothing_else(data, is_compressed, version):
    with contextlib.suppress(WireError):
        decode_registration(zlib.compress(data) if is_compressed else data, version=version, compressed=is_compressed)
