import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.client.errors import BadMessage
from twinlog.client.sending.draft import (
    SendContext,
    SendDraft,
    batch_item,
    draft_batch,
    draft_message,
    properties_text,
    send_header,
)
from twinlog.client.sending.outgoing import Outgoing, check_message, queue_for_key
from twinlog.client.sending.send_frames import SendFrames
from twinlog.wire import properties as names
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.command import Command, encode_command
from twinlog.wire.compression import decompress
from twinlog.wire.fields import encode_fields
from twinlog.wire.java_text import java_hash
from twinlog.wire.properties import check_pairs, decode_properties, encode_properties

QUEUE = MessageQueue("T", "broker-a", 3)
CONTEXT = SendContext("group")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SEPARATORS = st.sampled_from(["\x01", "\x02", "", "a\x02b\x01c"])
NAMES = TEXT | st.sampled_from(["__SHARDINGKEY", "color"])


def test_a_message_carries_its_tags_keys_and_delay_as_properties():
    message = Outgoing("T", "x", tags="a", keys=["k1", "k2"], delay_level=3, properties={"color": "red"})
    expected = {"color": "red", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "true"}
    assert message.wire_properties() == expected


def test_a_message_is_delayed_in_one_way_only():
    with pytest.raises(BadMessage, match="two ways"):
        Outgoing("T", "x", delay_level=1, delay_ms=5).wire_properties()


@pytest.mark.parametrize(("given", "as_list"), [("", []), ("a", ["a"]), (("a", "b"), ["a", "b"]), (["a"], ["a"])])
def test_keys_are_always_a_list_and_text_is_one_key(given, as_list):
    assert Outgoing("T", "x", keys=given).keys == as_list


@pytest.mark.parametrize("keys", ["a b", ["a", ""], ["a", "b c"], [7]])
def test_a_key_that_cannot_be_found_again_is_refused(keys):
    with pytest.raises(BadMessage, match=r"is not a word: .* give several keys as a list"):
        draft_message(Outgoing("T", "x", keys=keys), "ID", CONTEXT, 0)


@pytest.mark.parametrize("name", ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "PGROUP", "TRACE_ON", "__CRC32#", "TTL"])
def test_a_property_that_rocketmq_reserves_is_refused(name):
    for draft in (draft_message, lambda m, new_id, context, _: batch_item(m, new_id, 100)):
        with pytest.raises(BadMessage, match=f"reserves the property {name}, .* choose another name"):
            draft(Outgoing("T", "x", properties={"color": "red", name: "1"}), "ID", CONTEXT, 0)


@pytest.mark.parametrize("properties", [{"n": 3}, {3: "n"}, {"b": b"bytes"}, {"none": None}])
def test_a_property_that_is_not_text_is_refused(properties):
    with pytest.raises(BadMessage, match="is not text: properties are str"):
        draft_message(Outgoing("T", "x", properties=properties), "ID", CONTEXT, 0)


@pytest.mark.parametrize("level", [-1, 19, 99])
def test_a_delay_level_that_no_broker_has_is_refused(level):
    with pytest.raises(BadMessage, match=rf"delay level {level} .* is outside 1\.\.18; .*delay_level_max"):
        draft_message(Outgoing("T", "x", delay_level=level), "ID", CONTEXT, 0)
    if level > 0:
        draft_message(Outgoing("T", "x", delay_level=level), "ID", SendContext("g", delay_level_max=99), 0)


def test_a_delay_below_zero_is_refused():
    with pytest.raises(BadMessage, match="delay below 0"):
        draft_message(Outgoing("T", "x", delay_ms=-5), "ID", CONTEXT, 0)


def test_empty_and_oversized_bodies_are_refused():
    with pytest.raises(BadMessage, match="no body"):
        check_message(Outgoing("T", ""), 10)
    with pytest.raises(BadMessage, match="11 bytes, the limit is 10"):
        check_message(Outgoing("T", b"x" * 11), 10)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_large_body_is_compressed_and_flagged_with_the_method(kind):
    context = SendContext("group", compress_above_bytes=100, compression=kind)
    body = b"tea " * 1000
    draft = draft_message(Outgoing("T", body), "ID", context, 0)
    assert len(draft.body) < 500 and draft.sys_flag & 1
    assert decompress(draft.body, draft.sys_flag) == body


def test_a_small_body_and_one_that_does_not_shrink_stay_as_they_are():
    small, noise = b"x" * 99, bytes(range(256))
    for body in (small, noise):
        draft = draft_message(Outgoing("T", body), "ID", SendContext("g", compress_above_bytes=100), 0)
        assert (draft.sys_flag, draft.body) == (0, body)


def test_a_batch_keeps_each_messages_id_and_its_wrapper_has_none():
    messages = [Outgoing("T", "one", tags="a"), Outgoing("T", "two")]
    items = [batch_item(message, f"ID{i}", 100) for i, message in enumerate(messages, 1)]
    draft = draft_batch(items, 5)
    elements = [(e.body, decode_properties(e.properties)) for e in decode_batch(draft.body)]
    assert elements == [
        (b"one", {"TAGS": "a", "WAIT": "true", "UNIQ_KEY": "ID1"}),
        (b"two", {"WAIT": "true", "UNIQ_KEY": "ID2"}),
    ]
    assert (draft.batch, draft.message_id) == (True, "ID1,ID2")
    assert decode_properties(draft.properties) == {"WAIT": "true"}


def test_a_message_keeps_the_unique_key_that_it_has_alone_and_in_a_batch():
    message = Outgoing("T", "x", system_properties={"UNIQ_KEY": "mine"})
    assert draft_message(message, "new", CONTEXT, 0).message_id == "mine"
    assert draft_batch([batch_item(message, "new", 100)], 0).message_id == "mine"


def test_a_sharding_key_picks_the_queue_by_javas_hash_even_when_it_is_negative():
    queues = [MessageQueue("T", "b", i) for i in range(4)]
    assert java_hash("polygenelubricants") == -(2**31)
    assert queue_for_key("polygenelubricants", queues) == queues[0]
    assert queue_for_key("a", queues) == queues[97 % 4]


def test_a_property_with_a_separator_is_refused_beside_an_empty_one():
    with pytest.raises(BadMessage, match="separator"):
        draft_message(Outgoing("T", "x", properties={"empty": "", "a": "b\x02c\x01d"}), "ID", CONTEXT, 0)


def test_a_property_with_a_separator_is_refused():
    with pytest.raises(BadMessage, match="separator"):
        draft_message(Outgoing("T", "x", properties={"a": "b\x02c"}), "ID", CONTEXT, 0)


def plain_text(message: Outgoing, unique_id: str) -> str | None:
    """What the plain codec writes; None for what it refuses."""
    properties = message.wire_properties() | {names.UNIQ_KEY: unique_id}
    try:
        check_pairs(properties)
    except Exception:
        return None
    data = encode_properties(properties)
    return data.decode() if len(data) <= names.PROPERTIES_BYTES_MAX else None


@given(
    st.builds(
        Outgoing,
        topic=st.just("T"),
        body=st.just("x"),
        tags=TEXT | st.sampled_from(["a\x02b", "é" * 20_000]),
        keys=TEXT | st.lists(TEXT, max_size=3),
        properties=st.dictionaries(NAMES, TEXT | SEPARATORS, max_size=4),
        system_properties=st.dictionaries(st.sampled_from(["TAGS", "UNIQ_KEY", "DELAY"]), TEXT, max_size=2),
        sharding_key=TEXT,
        delay_level=st.integers(0, 1),
        wait_stored=st.booleans(),
    )
)
def test_the_text_of_the_properties_is_that_of_the_plain_codec(message):
    expected = plain_text(message, "ID")
    if expected is None:
        with pytest.raises(BadMessage):
            properties_text(message, "ID")
    else:
        assert properties_text(message, "ID") == expected


@given(
    st.lists(
        st.builds(
            SendDraft,
            code=st.sampled_from([310, 320, 325]),
            topic=TEXT | st.just('","g":"0","i":"","opaque":0'),
            message_id=st.just(""),
            properties=TEXT | st.just('\x01\x02"\\é'),
            body=st.binary(max_size=50),
            born_ms=st.integers(0, 2**62),
            sys_flag=st.integers(0, 2**31 - 1),
            flag=st.integers(-(2**31), 2**31 - 1),
        ),
        max_size=4,
    ),
    st.lists(st.builds(MessageQueue, TEXT, TEXT, st.integers(0, 9)), min_size=1, max_size=3),
    TEXT,
)
def test_a_frame_from_a_template_is_that_of_the_plain_codec(drafts, queues, group):
    context = SendContext(group)
    frames = SendFrames(context)
    for opaque, draft in enumerate(drafts * 2):
        draft.batch = draft.code == 320
        for queue in queues:
            fields = encode_fields(send_header(draft, queue, context))
            plain = encode_command(Command(draft.code, opaque, language="PYTHON", fields=fields, body=draft.body))
            assert frames.encode(draft, queue, opaque) == plain
