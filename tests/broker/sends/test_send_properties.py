"""Properties of sends stay text; what is cached about them is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.broker.sends import send_properties
from twinlog.broker.sends.send_properties import HALF, NO_SHAPE, SendProperties
from twinlog.settings.broker import BrokerSettings
from twinlog.wire.java_text import tags_code
from twinlog.wire.properties import encode_properties

OWN = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


def properties(**options) -> SendProperties:
    settings = {"waits": False, "levels": range(1, 19), "halves": True}
    return SendProperties(BrokerSettings(), **{**settings, **options})


def stored(made: SendProperties, text: str):
    """What is stored by a pattern, which must be the same as by pairs."""
    by_pairs = made.of(text, NO_SHAPE, None)
    shape = NO_SHAPE
    for _ in range(send_properties._SEEN_BEFORE + 1):
        shape = made.shape_of(text)
    assert shape is not NO_SHAPE
    by_pattern = made.of(text, shape, shape.match(text))
    assert by_pairs in (None, by_pattern)  # pairs leave to `send` what has to wait
    return by_pattern


def test_the_text_stays_and_the_brokers_properties_follow():
    made = properties()
    text = "colour\x01red\x02UNIQ_KEY\x01K1\x02KEYS\x01k1 k2\x02TAGS\x01a\x02"
    assert stored(made, text) == (text.encode() + OWN, tags_code("a"), "k1 k2", "K1", 0)


@pytest.mark.parametrize(
    ("extra", "parked"), [("DELAY\x013\x02", 3), ("TRAN_MSG\x01true\x02", HALF), ("TRAN_MSG\x01no\x02", 0)]
)
def test_a_message_that_waits_is_recognised(extra, parked):
    found = stored(properties(), f"UNIQ_KEY\x01K1\x02{extra}")
    assert found is not None and found[4] == parked


@pytest.mark.parametrize("extra", ["DELAY\x0119\x02", "DELAY\x01x\x02", "DELAY\x013\x02TRAN_MSG\x01true\x02"])
def test_what_is_unusual_is_left_to_send(extra):
    assert stored(properties(), f"UNIQ_KEY\x01K1\x02{extra}") is None


def test_a_message_that_does_not_wait_is_left_to_send_if_others_wait():
    text = "UNIQ_KEY\x01K1\x02WAIT\x01false\x02"
    assert stored(properties(waits=True), text) is None
    assert stored(properties(waits=False), text) is not None


PAIRS = [
    "UNIQ_KEY\x01K1\x02",
    "TAGS\x01a\x02",
    "KEYS\x01k1 k2\x02",
    "colour\x01red\x02",
    "a.b*\x01(\x02",
    "KEYS2\x01x\x02",
]


@given(
    st.lists(st.sampled_from(PAIRS), min_size=1, max_size=5, unique=True),
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from([*PAIRS, "novalue\x01\x02", "rest"]), max_size=7),
)
def test_names_in_any_order_are_stored_as_by_pairs(given_pairs, chance, others):
    made = properties()
    for _ in range(send_properties._SEEN_BEFORE + 1):
        made.shape_of("".join(given_pairs))
    for _ in range(3):
        chance.shuffle(given_pairs)
        text = "".join(given_pairs)
        shape = made.shape_of(text)
        assert made.of(text, shape, shape.match(text)) == made.of(text, NO_SHAPE, None)
        other = "".join(others)  # as a producer with other names finds the shape of the one before it
        assert made.of(other, shape, shape.match(other)) == made.of(other, NO_SHAPE, None)


def test_names_that_came_in_two_orders_have_one_pattern_for_all():
    made = properties()
    first, second, third = ("".join(PAIRS[at:] + PAIRS[:at]) for at in range(3))
    for _ in range(send_properties._SEEN_BEFORE + 1):
        made.shape_of(first)
    assert made.shape_of(first).match(second) is None
    assert made.shape_of(second).match(third) is not None
    assert made.shape_of(first) is made.shape_of(third)
    for wrong in (first + PAIRS[0], first + "\x02", "".join(PAIRS[1:]), "".join([*PAIRS[1:], PAIRS[1]])):
        assert made.shape_of(first).match(wrong) is None


def test_ever_new_names_fill_no_cache(monkeypatch):
    for name, limit in (("_SEEN_BEFORE", 1), ("_SEEN_MAX", 8), ("_SHAPES_MAX", 4)):
        monkeypatch.setattr(send_properties, name, limit)
    made = properties()
    for number in range(100):
        text = encode_properties({"UNIQ_KEY": "K", f"name{number}": "x"}).decode()
        assert made.shape_of(text) is NO_SHAPE
        assert made.shape_of(text).match(text) is not None
        assert made.shape_of("UNIQ_KEY\x01K\x02" + "y" * 600 + "\x01x\x02") is NO_SHAPE
        made.shape_of(f"seen{number}\x01once\x02")
        made.shape_of("\x02" * (2000 + 2 * number))  # a long list of empty names
        assert max(map(len, made._seen)) < 4
        assert len(made._shapes) <= 4 and len(made._seen) <= 8
