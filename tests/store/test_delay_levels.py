"""When a parked message is due: by the last DELAY of its properties, whatever else they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.delay_levels import DelayLevels
from twinlog.wire.properties import DELAY, decode_properties

LEVELS = DelayLevels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
pieces = st.sampled_from(
    [b"DELAY\x01", b"\x02", b"\x02DELAY\x01", b"1", b"3", b"18", b"99", b"-1", b" 2", b"x", b"\x01", b"a\x01b\x02"]
)


def due(properties: bytes) -> int:
    """By all pairs: the last one of the name counts, and a level above the highest is the highest."""
    try:
        level = min(int(decode_properties(properties).get(DELAY, "0")), LEVELS.level_max)
    except ValueError:
        return 7
    return 1_000 + LEVELS.ms.get(level, 1_000) if level > 0 else 7


@given(st.lists(pieces, max_size=8).map(b"".join))
def test_the_delivery_time_is_that_of_all_pairs_decoded(properties):
    assert LEVELS.delivery_time(properties, 1_000, 7) == due(properties)


def test_a_level_at_the_end_needs_no_separator_behind_it():
    assert LEVELS.delivery_time(b"a\x01b\x02DELAY\x0118", 1_000, 7) == 1_000 + 7_200_000
    assert LEVELS.delivery_time(memoryview(b"a\x01b\x02DELAY\x012\x02"), 1_000, 7) == 6_000
