import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire.errors import FrameError
from twinlog.wire.frame import FRAME_BYTES_MAX, Frame, encode_frame, encode_prefix, frame_span, take_frame

from . import vectors

JAVA_SEND_REQUEST = vectors.data("class-send-v2-req-json")


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_a_frame_is_the_same_however_the_network_cuts_it(step):
    buffer, frames = bytearray(), []
    for at in range(0, len(JAVA_SEND_REQUEST), step):
        buffer += JAVA_SEND_REQUEST[at : at + step]
        while frame := take_frame(buffer):
            frames.append(frame)
    assert [(f.header_type, len(f.header), f.body) for f in frames] == [(0, 365, b"hello")]
    assert not buffer


@given(st.binary())
def test_garbage_is_a_frame_error_and_nothing_else(data):
    with contextlib.suppress(FrameError):
        take_frame(bytearray(data))


@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_frames_in_one_segment_come_out_in_order(parts):
    buffer = bytearray(b"".join(encode_frame(header, body, kind) for kind, header, body in parts))
    assert [take_frame(buffer) for _ in parts] == [Frame(*part) for part in parts]
    assert take_frame(buffer) is None


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX - 3, -1, 0, 3, 0x47455420])
def test_a_length_that_java_refuses_is_refused_as_soon_as_it_is_read(length):
    with pytest.raises(FrameError, match=str(length)):
        take_frame(bytearray(length.to_bytes(4, "big", signed=True)))


def test_the_largest_frame_is_waited_for():
    assert take_frame(bytearray((FRAME_BYTES_MAX - 4).to_bytes(4, "big"))) is None


def test_a_header_longer_than_its_frame_is_refused():
    with pytest.raises(FrameError, match="header ends"):
        take_frame(bytearray(b"\x00\x00\x00\x08\x00\x00\x00\x05abcd"))


def test_a_header_type_that_does_not_exist_is_refused():
    with pytest.raises(FrameError, match="header type 2"):
        take_frame(bytearray(b"\x00\x00\x00\x04\x02\x00\x00\x00"))


def test_a_frame_too_large_for_a_peer_is_not_built():
    with pytest.raises(FrameError, match="pages"):
        encode_frame(b"{}", bytes(FRAME_BYTES_MAX))
    with pytest.raises(FrameError, match="pages"):
        encode_prefix(2, FRAME_BYTES_MAX)


def test_prefix_and_parts_are_the_same_as_the_whole_frame():
    assert encode_prefix(2, 4) + b"{}" + b"body" == encode_frame(b"{}", b"body")
    assert frame_span(encode_frame(b"{}", b"body"), 0, 14) == (0, 10, 14)
