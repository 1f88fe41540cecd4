import pytest

from twinlog.store.recovery.scan_start import choose_start

SEGMENTS = [(0, 100), (1000, 200), (2000, 300), (3000, 0)]


@pytest.mark.parametrize(
    ("facts", "start"),
    [
        ({"clean": True, "queues_end": 2500, "safe_timestamp": 0, "index_end": None}, 2),
        ({"clean": True, "queues_end": 0, "safe_timestamp": 999, "index_end": None}, 0),
        ({"clean": True, "queues_end": 2500, "safe_timestamp": 0, "index_end": 1500}, 1),
        ({"clean": False, "queues_end": 2500, "safe_timestamp": 250, "index_end": None}, 1),
        ({"clean": False, "queues_end": 2500, "safe_timestamp": 999, "index_end": None}, 2),
        ({"clean": False, "queues_end": 2500, "safe_timestamp": 0, "index_end": None}, 0),
        ({"clean": False, "queues_end": 2500, "safe_timestamp": 999, "index_end": 0}, 0),
        ({"clean": True, "queues_end": 2500, "safe_timestamp": 0, "index_end": None, "bytes_min": 1000}, 2),
        ({"clean": True, "queues_end": 2500, "safe_timestamp": 0, "index_end": None, "bytes_min": 1001}, 1),
        ({"clean": True, "queues_end": 2500, "safe_timestamp": 0, "index_end": None, "bytes_min": 9999}, 0),
    ],
)
def test_the_scan_starts_at_the_last_segment_that_is_surely_known(facts, start):
    assert choose_start(SEGMENTS, **facts) == start
