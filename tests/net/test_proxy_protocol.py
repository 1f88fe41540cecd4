import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.net.proxy_protocol import Preamble, ProxyError, take_preamble

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2 = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([203, 0, 113, 7, 10, 0, 0, 1]) + b"\x15\xb3\x2a\x9f"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"\x00\x00\x01\x00", Preamble(0)),
        (b"\x16\x03\x01", Preamble(0)),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 99 80\r\nrest", Preamble(34, ("1.2.3.4", 99))),
        (b"PROXY TCP6 ::1 ::2 99 80\r\n", Preamble(26, ("::1", 99))),
        (b"PROXY UNKNOWN\r\n", Preamble(15)),
        (V2 + b"rest", Preamble(28, ("203.0.113.7", 5555))),
        (SIGNATURE + b"\x20\x00\x00\x00", Preamble(16)),
    ],
)
def test_a_preamble_is_recognised(start, expected):
    assert take_preamble(start) == expected


@pytest.mark.parametrize("whole", [b"PROXY TCP4 1.2.3.4 5.6.7.8 99 80\r\n", V2])
def test_an_unfinished_preamble_asks_for_more(whole):
    assert all(take_preamble(whole[:size]) is None for size in range(1, len(whole)))


FALSE = [b"PROXY TCP4 a b c d\r\n", b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 80\r\n", b"PROXY " + b"x" * 200]


@pytest.mark.parametrize("start", [*FALSE, SIGNATURE + b"\x11\x11\x00\x00"])
def test_a_false_preamble_is_an_error(start):
    with pytest.raises(ProxyError):
        take_preamble(start)


@given(st.binary(max_size=40))
def test_garbage_is_a_proxy_error_and_nothing_else(data):
    for start in (data, b"PROXY " + data, SIGNATURE + data):
        with contextlib.suppress(ProxyError):
            take_preamble(start)
