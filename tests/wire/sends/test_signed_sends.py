"""The struct decoder of signed headers and the one for any names agree, with each other and with the signature."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.security.signatures import signed_content
from twinlog.wire.sends.send_headers import LONG_NAMES, SHORT_NAMES
from twinlog.wire.sends.signed_sends import SignedOrder, decode_signed_json, decode_usual_json

NUMBERS = ("default_topic_queue_nums", "queue_id", "sys_flag", "flag", "born_timestamp", "reconsume_times")
MORE = {310: ("k", "l", "n"), 10: ("unitMode", "maxReconsumeTimes", "bname")}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_OTHER_NAMES = st.sampled_from(["SecurityToken", "lo", "_UNIQUE_KEY_QUERY", "aa"])


@st.composite
def headers(draw) -> tuple[bytes, dict[str, str]]:
    """A header with most of the usual members, in any order, and sometimes with others or one that is there twice."""
    code = draw(st.sampled_from([310, 310, 10]))
    names = SHORT_NAMES if code == 310 else LONG_NAMES
    values = {name: draw(st.integers(0, 99).map(str) if key in NUMBERS else _TEXT) for key, name in names.items()}
    values |= {name: draw(_TEXT) for name in MORE[code]} | {"AccessKey": "me", "Signature": "x" * 28}
    values |= draw(st.dictionaries(_OTHER_NAMES, _TEXT, max_size=1))
    for name in draw(st.lists(st.sampled_from(sorted(values)), max_size=1)):
        del values[name]
    pairs = draw(st.permutations(list(values.items())))
    if draw(st.integers(0, 4)) == 0:
        pairs = [*pairs, (draw(st.sampled_from(sorted(values))), "7")]
    fields = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
    head = draw(st.sampled_from(["", "", "", '"code":310,', '"code":10,', '"code":320,', '"remark":null,']))
    text = f'{{"code":{code},{head}"extFields":{{{fields}}},"flag":0,"language":"JAVA","opaque":7,"version":479}}'
    return text.encode(), dict(pairs)


@given(headers())
def test_both_decoders_read_the_same_send_and_sign_the_same_text(made):
    header, fields = made
    usual, other = decode_usual_json(header), decode_signed_json(header)
    if usual is None:
        return  # left to the other decoder
    assert other is not None
    flat, (account, given_signature, content) = usual
    assert (flat, fields) == other
    assert (account, given_signature) == (fields["AccessKey"], fields["Signature"])
    assert content == SignedOrder().values(fields)
    assert content.encode() == signed_content(fields, None)


@pytest.mark.parametrize("code", [310, 10])
def test_the_header_of_a_usual_client_is_read_by_the_struct(code):
    """Otherwise the property above would hold for nothing."""
    names = SHORT_NAMES if code == 310 else LONG_NAMES
    fields = dict.fromkeys((*names.values(), *MORE[code], "AccessKey", "Signature"), "1")
    text = json.dumps({"code": code, "extFields": fields, "flag": 0, "opaque": 1}, separators=(",", ":")).encode()
    assert decode_usual_json(text) is not None
    for name in (names["reconsume_times"], names["batch"]):
        shorter = {key: value for key, value in fields.items() if key != name}
        text = json.dumps({"code": code, "extFields": shorter, "opaque": 1}, separators=(",", ":")).encode()
        assert decode_usual_json(text) is None and decode_signed_json(text) is not None
