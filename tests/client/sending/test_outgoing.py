import pytest

from twinlog.client.errors import BadMessage
from twinlog.client.sending.outgoing import (
    Outgoing,
    SendContext,
    check_message,
    encode_send,
    encode_send_batch,
    queue_for_key,
)
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.compression import decompress
from twinlog.wire.java_text import java_hash
from twinlog.wire.properties import decode_properties

QUEUE = MessageQueue("T", "broker-a", 3)
CONTEXT = SendContext("group")


def test_a_message_carries_its_tags_keys_and_delay_as_properties():
    message = Outgoing("T", "x", tags="a", keys=["k1", "k2"], delay_level=3, properties={"color": "red"})
    expected = {"color": "red", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "true"}
    assert message.wire_properties() == expected


def test_a_message_is_delayed_in_one_way_only():
    with pytest.raises(BadMessage, match="two ways"):
        Outgoing("T", "x", delay_level=1, delay_ms=5).wire_properties()


def test_empty_and_oversized_bodies_are_refused():
    with pytest.raises(BadMessage, match="no body"):
        check_message(Outgoing("T", ""), 10)
    with pytest.raises(BadMessage, match="11 bytes, the limit is 10"):
        check_message(Outgoing("T", b"x" * 11), 10)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_large_body_is_compressed_and_flagged_with_the_method(kind):
    context = SendContext("group", compress_above_bytes=100, compression=kind)
    body = b"tea " * 1000
    header, packed = encode_send(Outgoing("T", body), QUEUE, {}, context, 0)
    assert len(packed) < 500
    assert header.sys_flag is not None and header.sys_flag & 1
    assert decompress(packed, header.sys_flag) == body


def test_a_small_body_and_one_that_does_not_shrink_stay_as_they_are():
    small, noise = b"x" * 99, bytes(range(256))
    for body in (small, noise):
        header, sent = encode_send(Outgoing("T", body), QUEUE, {}, SendContext("g", compress_above_bytes=100), 0)
        assert (header.sys_flag, sent) == (0, body)


def test_a_batch_keeps_each_messages_id_and_its_wrapper_has_none():
    messages = [Outgoing("T", "one", tags="a"), Outgoing("T", "two")]
    header, body = encode_send_batch(messages, ["ID1", "ID2"], QUEUE, CONTEXT, 5)
    elements = [(e.body, decode_properties(e.properties)) for e in decode_batch(body)]
    assert elements == [
        (b"one", {"TAGS": "a", "WAIT": "true", "UNIQ_KEY": "ID1"}),
        (b"two", {"WAIT": "true", "UNIQ_KEY": "ID2"}),
    ]
    assert header.batch is True
    assert decode_properties(header.properties or "") == {"WAIT": "true"}


def test_a_sharding_key_picks_the_queue_by_javas_hash_even_when_it_is_negative():
    queues = [MessageQueue("T", "b", i) for i in range(4)]
    assert java_hash("polygenelubricants") == -(2**31)
    assert queue_for_key("polygenelubricants", queues) == queues[0]
    assert queue_for_key("a", queues) == queues[97 % 4]


def test_a_property_with_a_separator_is_refused():
    with pytest.raises(BadMessage, match="separator"):
        encode_send(Outgoing("T", "x"), QUEUE, {"a": "b\x02c"}, CONTEXT, 0)
