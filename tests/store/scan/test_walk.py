"""Where a walk goes on after a scan has stopped."""

import pytest

from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import Stop, StopReason
from twinlog.store.scan.walk import NextStep, ends_segment, next_step
from twinlog.wire.message import Message, encode_message

SIZE = 1000


@pytest.mark.parametrize(
    ("reason", "position", "arrived", "step"),
    [
        (StopReason.BLANK, 400, SIZE, NextStep.NEXT_SEGMENT),
        (StopReason.BLANK, 400, 500, NextStep.WAIT),
        (StopReason.END, SIZE, SIZE, NextStep.NEXT_SEGMENT),
        (StopReason.SHORT, SIZE - 7, SIZE, NextStep.NEXT_SEGMENT),  # not even a blank record fits there
        (StopReason.END, SIZE - 7, SIZE - 3, NextStep.WAIT),
        (StopReason.END, 500, 500, NextStep.WAIT),  # everything that has arrived was read
        (StopReason.SHORT, 493, 500, NextStep.WAIT),
        (StopReason.SHORT, 400, 500, NextStep.WAIT),
        (StopReason.SHORT, 400, SIZE, NextStep.DAMAGE),
        (StopReason.END, 400, 500, NextStep.ZEROS),
        (StopReason.END, 400, SIZE, NextStep.ZEROS),
        (StopReason.CRC, 400, 500, NextStep.DAMAGE),
        (StopReason.MAGIC, 400, SIZE, NextStep.DAMAGE),
    ],
)
def test_the_next_step_follows_from_the_reason_and_from_what_has_arrived(reason, position, arrived, step):
    assert next_step(Stop(position, reason), arrived, SIZE) is step
    if arrived == SIZE:
        assert ends_segment(Stop(position, reason), SIZE) is (step is NextStep.NEXT_SEGMENT)


def test_a_transfer_that_is_cut_anywhere_is_waited_for_and_never_taken_for_damage():
    records = encode_message(Message(topic="T", body=b"one"))
    records += encode_message(Message(topic="T", body=b"two", physical_offset=len(records)))
    segment = records + (SIZE - len(records)).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    segment = segment.ljust(SIZE, b"\0")
    for arrived in range(1, SIZE + 1):
        *_, last = scan(segment, 0, arrived, 0)
        expected = NextStep.NEXT_SEGMENT if arrived == SIZE else NextStep.WAIT
        assert next_step(last.stop, arrived, SIZE) is expected, arrived
