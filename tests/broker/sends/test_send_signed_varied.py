"""Templates of signed headers with properties that differ: the same answers and records as on the plain path."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.contexts import open_context
from tests.broker.running import SEND_FIELDS
from tests.broker.sends.signing import ACCOUNTS, ALLOWED, Peer, gate_of, play, signed
from tests.broker.sends.spellings import PIECES

from twinlog.broker.sends import send_properties, send_signed
from twinlog.broker.sends.send_fast import FastSend
from twinlog.broker.sends.send_signed_varied import varied_parts
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.security.signatures import account_key, signature
from twinlog.security.users import Account
from twinlog.wire.command import Command, encode_command


@pytest.fixture(autouse=True)
def shapes_are_made_at_once(monkeypatch):
    monkeypatch.setattr(send_properties, "_SEEN_BEFORE", 0)


def keyed(number: int, signer: str = "alice", topic: str = "T", text: str | None = None, queue: int = 0) -> bytes:
    """The frame of a send as a Java producer writes it: with another KEYS in each message, or with this text."""
    text = f"KEYS\x01order-{number}\x02UNIQ_KEY\x01{number:032X}\x02TAGS\x01a\x02" if text is None else text
    fields = {**SEND_FIELDS, "b": topic, "e": str(queue), "i": text}
    return encode_command(signed(signer, "java", Command(310, 10 + number, fields=fields, body=b"x" * 30)))


texts = st.one_of(
    st.builds("KEYS\x01{}\x02UNIQ_KEY\x01{:032X}\x02TAGS\x01a\x02".format, st.text(min_size=1), st.integers(0, 9)),
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
)
varied = st.builds(
    lambda number, signer, text, queue: keyed(number, signer, text=text, queue=queue),
    st.integers(0, 2**31 - 11),
    st.sampled_from(["alice", "alice", "alice", "alice", "root", "alice wrongly", "alice cut", "alice moved"]),
    texts,
    st.sampled_from([0, 0, 1]),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(varied, min_size=4, max_size=12), st.sampled_from([7, None, None, None]))
def test_sends_with_properties_that_differ_are_stored_and_answered_as_on_the_plain_path(frames, step):
    """Seen to fail: without the comparison of signatures in `VariedHeaders.take`."""
    frames = [*(keyed(number) for number in range(3)), *frames, keyed(3)]
    assert play(frames, step, fast=True) == play(frames, 100_000, fast=False)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(8, 2**16), st.integers(0, 255)), min_size=4, max_size=12))
def test_no_changed_byte_of_such_a_send_is_believed(changes):
    """Seen to fail: without the comparison of the bytes behind the signature."""
    frames = [keyed(number) for number in range(3)]
    for number, (place, byte) in enumerate(changes):
        frame = bytearray(keyed(3 + number))
        frame[8 + place % (len(frame) - 8)] = byte
        frames.append(bytes(frame))
    assert play(frames, None, fast=True) == play(frames, 100_000, fast=False)


@pytest.fixture
def ctx():
    with tempfile.TemporaryDirectory() as folder, open_context(Path(folder)) as ctx:
        for topic in ("T", "T2"):
            ensure_topic(ctx, topic, 4)
        yield ctx


def test_such_a_send_is_not_decoded_once_its_template_is_known(ctx, monkeypatch):
    gate_of(ctx)
    fast = FastSend(ctx)

    def takes(frame: bytes, source: str = "10.0.0.1") -> bool:
        return fast.take(Peer(source), frame, 0, len(frame), []) == len(frame)  # pyright: ignore

    assert takes(keyed(1, topic="T2")) and takes(keyed(2, topic="T2"))
    monkeypatch.setattr(send_signed, "decode_usual_json", lambda header: pytest.fail("decoded again"))
    assert takes(keyed(3, topic="T2"))
    assert takes(keyed(4, topic="T2", text=f"KEYS\x01a b/c: d\x02UNIQ_KEY\x01{4:032X}\x02TAGS\x01b\x02"))
    monkeypatch.undo()
    for wrong in ("alice wrongly", "alice cut", "alice moved"):
        assert not takes(keyed(5, wrong, topic="T2"))
    assert not takes(keyed(6, topic="T2"), source="10.0.0.2")  # from where the account may not send


@pytest.mark.parametrize("uniq_key", ["schlüssel", 'has "quote', "back\\slash", "中\U0001f600"])
def test_a_unique_key_of_other_characters_is_answered_as_on_the_plain_path(uniq_key):
    """Seen to fail: without `json_texts`."""
    frames = [keyed(number, text=f"KEYS\x01k{number}\x02UNIQ_KEY\x01{uniq_key}\x02") for number in range(4)]
    assert play(frames, None, fast=True) == play(frames, 100_000, fast=False)


def test_a_changed_account_counts_for_the_next_chunk_of_such_sends(ctx):
    accounts, edition = dict(ACCOUNTS), [0]
    gate_of(ctx, accounts, edition)
    fast = FastSend(ctx)
    for number in range(4):
        frame = keyed(number)
        assert fast.take(Peer(), frame, 0, len(frame), []) == len(frame)  # pyright: ignore
    accounts["alice"] = Account("alice", "new secret", policies=ALLOWED)
    edition[0] += 1
    frame = keyed(4)
    assert fast.take(Peer(), frame, 0, len(frame), []) == 0  # pyright: ignore


FIELDS = {**SEND_FIELDS, "i": "UNIQ_KEY\x01A1\x02", "AccessKey": "alice"}
FIELDS["Signature"] = signature(FIELDS, b"body", "alice secret")
HEADER = json.dumps({"code": 310, "extFields": FIELDS, "flag": 0, "opaque": 7, "version": 479}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version":479', '"version":479,"x":{"i":"y"}'),  # a name that is there twice
        ('"version":479', '"version":479,"x":{"g":"1700000000000"}'),
        ('"version":479', '"version":479,"opaque":8'),
        ('"version":479', '"version":479,"\\u006fpaque":8'),  # or a second time in escapes
        ('"extFields":', '"extFields":{"i":"y"},"extFields":'),
        ('"i":"UNIQ_KEY\\u0001A1\\u0002"', '"i":"UNIQ_KEY\\u0001A1\\u0002\\""'),  # ends with a quotation mark
        ('"i":"UNIQ_KEY\\u0001A1\\u0002"', '"i" :"UNIQ_KEY\\u0001A1\\u0002"'),
        ('"g":"1', '"g":"x'),
        (',"opaque":7', ""),
        ('"opaque":7,', '"opaque":7.0,'),
        ('"a":"', '"a":"' + "x" * 1024),  # longer than what is cached
        ('{"code":310', '{"code":10'),
    ],
)
def test_a_header_that_could_be_read_in_two_ways_makes_no_template(old, new):
    key = account_key(b"alice secret")
    assert varied_parts(HEADER.encode(), FIELDS, key) is not None
    assert HEADER.count(old) == 1
    assert varied_parts(HEADER.replace(old, new).encode(), FIELDS, key) is None
