import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.client.errors import BadMessage
from twinlog.client.sending.batches import check_batch, join_results, split_batch, split_result
from twinlog.client.sending.draft import batch_item, draft_batch
from twinlog.client.sending.outgoing import Outgoing, SendResult, SendStatus
from twinlog.wire.batch import decode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.message import Message, encode_message
from twinlog.wire.properties import decode_properties

QUEUE = MessageQueue("T", "broker-a", 3)
MESSAGES = st.lists(
    st.builds(
        Outgoing,
        topic=st.just("T"),
        body=st.binary(min_size=1, max_size=400),
        tags=st.text("ab", max_size=3),
        properties=st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.text("é1", min_size=1, max_size=30)),
    ),
    min_size=1,
    max_size=30,
)


@given(MESSAGES, st.integers(1, 3000))
def test_splitting_never_loses_reorders_or_exceeds_the_limit(messages, bytes_max):
    items = [batch_item(message, f"{i:032}", 1000) for i, message in enumerate(messages)]
    parts = list(split_batch(items, bytes_max))
    assert [item for part in parts for item in part] == items
    for part in parts:
        assert part
        if len(part) > 1:
            assert sum(item.request_bytes for item in part) <= bytes_max
            assert len(draft_batch(part, 0).body) <= bytes_max
            assert sum(map(record_bytes, part)) <= bytes_max  # what the broker compares
    for part, following in itertools.pairwise(parts):
        assert sum(item.request_bytes for item in part) + following[0].request_bytes > bytes_max, "as few as possible"


def record_bytes(item) -> int:
    """The largest record that a broker makes of it."""
    hosts = ("2001:db8::1", 10911)
    properties = decode_properties(item.element.properties)
    message = Message(topic="T", body=item.element.body, properties=properties, born_host=hosts, store_host=hosts)
    return len(encode_message(message))


@given(MESSAGES)
def test_the_elements_of_a_batch_are_its_messages(messages):
    items = [batch_item(message, f"{i:032}", 1000) for i, message in enumerate(messages)]
    draft = draft_batch(items, 0)
    elements = decode_batch(draft.body)
    assert [element.body for element in elements] == [message.body for message in messages]
    ids = [decode_properties(element.properties)["UNIQ_KEY"] for element in elements]
    assert ",".join(ids) == draft.message_id


def test_what_cannot_be_sent_together_is_refused():
    with pytest.raises(BadMessage, match="at least one"):
        check_batch([])
    with pytest.raises(BadMessage, match="one topic"):
        check_batch([Outgoing("T", "a"), Outgoing("U", "b")])
    with pytest.raises(BadMessage, match="delayed"):
        check_batch([Outgoing("T", "a"), Outgoing("T", "b", delay_level=1)])
    with pytest.raises(BadMessage, match="delayed"):
        check_batch([Outgoing("T", "a", system_properties={"DELAY": "3"})])
    check_batch([Outgoing("T", "a", system_properties={"DELAY": "0"})])


def test_results_are_joined_and_divided_again():
    first = SendResult(SendStatus.OK, "A,B", QUEUE, 7, "P0,P1")
    second = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "C", QUEUE, 9, "P2")
    joined = join_results([first, second])
    assert joined == SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "A,B,C", QUEUE, 7, "P0,P1,P2")
    assert split_result(joined, joined.message_id.split(",")) == [
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "A", QUEUE, 7, "P0"),
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "B", QUEUE, 8, "P1"),
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "C", QUEUE, 9, "P2"),
    ]


def test_messages_of_an_inner_batch_share_its_place():
    results = split_result(SendResult(SendStatus.OK, "A,B", QUEUE, 4, "P0"), ["A", "B"])
    assert [(each.message_id, each.queue_offset, each.offset_message_id) for each in results] == [
        ("A", 4, "P0"),
        ("B", 5, "P0"),
    ]
