"""Frames of batches beside the commands that define them."""

from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from twinlog.spark.writing import send_frames
from twinlog.spark.writing.options import write_options
from twinlog.spark.writing.rows import EncodedRows, pieces_of
from twinlog.spark.writing.send_frames import BatchFrames, send_command
from twinlog.spark.writing.send_queue import SendRequest
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.command import encode_command

name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def options(group="g"):
    given = {"nameServer": "127.0.0.1:9876", "topic": "T", "producerGroup": group, "compressBodyOverBytes": "40"}
    return write_options(given, streaming=False)


def request_of(bodies: list[bytes], begin: int, end: int, chosen) -> SendRequest:
    (piece,) = pieces_of(pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}), chosen, 0, 0)
    empty = pa.array([b""] * len(bodies), pa.binary())
    return SendRequest(EncodedRows(piece, np.arange(len(bodies)), [empty], chosen), begin, end, True)


@given(
    group=name,
    queues=st.lists(st.builds(MessageQueue, name, name, st.integers(0, 2**31 - 1)), min_size=1, max_size=3),
    bodies=st.lists(st.binary(min_size=1, max_size=90), min_size=1, max_size=6),
    opaque=st.integers(0, 2**31 - 1),
    born=st.integers(0, 2**62),
)
def test_a_frame_is_that_of_the_command(group, queues, bodies, opaque, born):
    chosen = options(group.strip() or "g")
    frames = BatchFrames(chosen)
    request = request_of(bodies, len(bodies) // 2, len(bodies), chosen)
    with mock.patch.object(send_frames, "wall_clock_ms", lambda: born):
        for queue in queues * 2:
            command = send_command(chosen, queue, request)
            command.opaque, command.language = opaque, "PYTHON"
            frame = frames.frame(queue, request, opaque)
            assert frame is not None
            assert b"".join(frame) == encode_command(command)


def test_a_name_that_looks_like_a_stand_in_is_sent_as_a_command():
    frames = BatchFrames(options())
    request = request_of([b"x"], 0, 1, options())
    for number in (send_frames._BORN, send_frames._OPAQUE):
        assert frames.frame(MessageQueue(f"T{number}", "b", 0), request, 1) is None
    assert frames.frame(MessageQueue("T100%d", "b", 0), request, 1) is not None
