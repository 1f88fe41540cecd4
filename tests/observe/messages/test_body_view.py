"""Bodies as a person reads them."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.observe.messages.body_view import (
    HEX,
    JSON,
    SHOWN_BYTES_MAX,
    TEXT,
    first_line,
    forms_of,
    hex_dump,
    shown_as,
)


def test_the_most_readable_form_comes_first():
    assert forms_of(b'{"a": 1}')[0] == JSON and forms_of(b" [1]")[0] == TEXT
    assert forms_of("grün\n".encode())[0] == TEXT and forms_of(b"{broken")[0] == TEXT
    assert forms_of(b"\x00\x01")[0] == HEX and forms_of(b"\xff")[0] == HEX


def test_forms():
    assert shown_as(b'{"a":1}', JSON) == '{\n  "a": 1\n}'
    assert shown_as(b"a\x00b\nc", TEXT) == "a\\x00b\nc"
    assert hex_dump(b"Hello\x00") == "00000000  48 65 6c 6c 6f 00" + " " * 32 + "Hello."
    assert first_line(b"one\ntwo") == "one …" and first_line(b"one") == "one"
    assert shown_as(b"x" * (SHOWN_BYTES_MAX + 5), TEXT).endswith("\n… 5 more bytes")


@given(st.binary(max_size=300))
def test_every_body_has_every_form_it_offers(body):
    for form in forms_of(body):
        assert isinstance(shown_as(body, form), str)
    assert "\n" not in first_line(body)
