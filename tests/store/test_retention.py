"""Old segments go by age, by disk space, or when asked; the last one never."""

import os

import pytest
from tests.store.store_at import NOW, SEGMENT, bodies, fill, open_store, settings_at

from twinlog.store.retention import Retention, decide
from twinlog.store.run_flags import RunFlags

HOUR = 3_600_000
OLD, YOUNG = NOW - 73 * HOUR, NOW - 71 * HOUR


@pytest.mark.parametrize(
    ("facts", "count", "full"),
    [
        ({"hour": 4}, 2, False),
        ({"hour": 5}, 0, False),
        ({"hour": 5, "manual": True}, 2, False),
        ({"hour": 5, "disk_percent": 75.0}, 0, False),
        ({"hour": 5, "disk_percent": 76.0}, 2, False),
        ({"hour": 5, "disk_percent": 86.0}, 3, False),
        ({"hour": 5, "disk_percent": 91.0}, 3, True),
        ({"hour": 5, "modified_ms": []}, 0, False),
        ({"hour": 4, "modified_ms": [YOUNG, OLD]}, 0, False),
        ({"hour": 4, "modified_ms": [OLD] * 30}, 10, False),
    ],
)
def test_the_decision(tmp_path, facts, count, full):
    decision = decide(
        settings_at(tmp_path), **{"modified_ms": [OLD, OLD, YOUNG], "disk_percent": 10.0, "now_ms": NOW} | facts
    )
    assert (decision.count, decision.disk_full) == (count, full)


def test_without_forcible_cleaning_nothing_goes_before_its_time(tmp_path):
    settings = settings_at(tmp_path, forcible_cleaning=False)
    decision = decide(settings, modified_ms=[OLD, YOUNG], disk_percent=95.0, hour=5, now_ms=NOW)
    assert decision.count == 1 and decision.disk_full


def test_ratios_are_clamped_as_in_java(tmp_path):
    settings = settings_at(tmp_path, disk_percent_full=99, disk_percent_forcible=99)
    decision = decide(settings, modified_ms=[YOUNG], disk_percent=91.0, hour=5, now_ms=NOW)
    assert decision.count == 1 and decision.disk_full


def test_a_cleaned_store_reads_from_its_new_start(tmp_path):
    with open_store(tmp_path) as store:
        fill(store, 500)
        store.flush()
        segments = [segment.path for segment in store.commit_log.segments]
        for path in segments[:-2]:
            os.utime(path, (0, 0))
        window = store.read("TopicA", 0, 0).buffers[0]
        cleaned = store.clean_expired(NOW, manual=True)
        assert cleaned.segments == len(segments) - 2 and cleaned.bytes == cleaned.segments * SEGMENT
        assert store.log_start == SEGMENT * cleaned.segments
        assert bytes(window[4:8]) == bytes.fromhex("daa320a7")  # a reader that was faster keeps its bytes
        low = store.min_offset("TopicA", 0)
        assert low > 0 and store.unit("TopicA", 0, low)[0] >= store.log_start
        assert len(bodies(store, queue_offset=low)) == 250 - low
        assert store.clean_expired(NOW, manual=True).segments == 0
    assert [path for path in segments if path.exists()] == segments[-2:]
    with open_store(tmp_path) as store:
        assert store.min_offset("TopicA", 0) == low


def test_the_last_segment_and_unflushed_ones_stay(tmp_path):
    with open_store(tmp_path, settings={"reserved_hours": 0}) as store:
        fill(store, 300)
        assert store.clean_expired(NOW + HOUR, manual=True).segments == 0
        store.flush()
        for _ in range(3):
            store.clean_expired(NOW + 10**12, manual=True)
        assert len(store.commit_log.segments) == 1


def test_a_full_disk_refuses_sends_until_there_is_space(tmp_path):
    with open_store(tmp_path) as store:
        used = [0.95]
        retention = Retention(
            store.settings, store.commit_log, store.flags, queue_directory=tmp_path, disk_ratio=lambda: used[0]
        )
        retention.clean(NOW)
        assert store.flags.value == RunFlags.DISK_FULL and not store.flags.writable and store.flags.readable
        used[0] = 0.5
        retention.clean(NOW)
        assert store.flags.writable
