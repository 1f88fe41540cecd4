"""A template is learnt only from headers whose variable parts are where they are expected."""

from __future__ import annotations

import pytest
from tests.broker.running import SEND_FIELDS

from twinlog.broker.sends.send_template import learn
from twinlog.wire.command import Command, encode_header

KEY = "7F0000011234567890ABCDEF00000001"


def header(**fields: str) -> bytes:
    properties = f"WAIT\x01true\x02UNIQ_KEY\x01{KEY}\x02TAGS\x01a\x02"
    return encode_header(Command(310, 17, fields={**SEND_FIELDS, "i": properties, **fields}))


def test_a_template_and_its_variable_parts_make_the_header_again():
    learnt = learn(header(), KEY)
    assert learnt is not None
    parts = (learnt.prefix, b"1700000000000", learnt.before, KEY.encode(), learnt.after, b"17", learnt.trailer)
    assert b"".join(parts) == header()


@pytest.mark.parametrize(
    "strange",
    [
        header(g="1"),
        header(g="17000000000000"),
        header(i="TAGS\x01a\x02"),
        header(i=f"UNIQ_KEY\x01{KEY}\x02UNIQ_KEY\x01{KEY}\x02"),
        header(i="UNIQ_KEY\x01other\x02"),
        header(n="UNIQ_KEY"),
        header().replace(b'"opaque":17', b'"opaque":-7'),
        b'{"opaque":17,' + header()[1:].replace(b'"opaque":17,', b""),
        header().replace(b"\\u0001", b"\\U0001"),
        header().replace(b'"h":', b'"g": "1",h":'),
        header().replace(b'"h":', b'"\\u0067":"1","h":'),
        header().replace(b'"opaque":17', b'"opaque":17,"opaque":18'),
        header().replace(b'"code":310', b'"code":10'),
        b"{}",
    ],
)
def test_a_header_of_another_shape_gives_no_template(strange):
    assert learn(strange, KEY) is None
