"""Delay levels: the first message of a level decides, and nothing is early, lost or skipped."""

from __future__ import annotations

from twinlog.broker.deferred.delay import LevelCursor, offset_to_resume, open_cursors

NOW = 1_800_000_000_000


def test_a_message_is_due_at_the_time_its_unit_names():
    cursor = LevelCursor(3, 10_000, next_offset=5)
    assert cursor.queue_id == 2
    assert cursor.due_ms(NOW + 4_000, NOW) == NOW + 4_000
    cursor.advance()
    assert cursor.next_offset == 6
    assert cursor.due_ms(NOW - 1, NOW) == NOW - 1


def test_after_the_clock_was_set_back_a_message_waits_its_level_and_no_longer():
    cursor = LevelCursor(3, 10_000, next_offset=5)
    assert cursor.due_ms(NOW + 3_600_000, NOW) == NOW + 10_000
    assert cursor.due_ms(NOW + 3_600_000, NOW + 9_000) == NOW + 10_000  # looking again does not start anew


def test_saved_offsets_are_corrected_to_what_the_queues_still_hold():
    cursors = open_cursors(
        {1: 1_000, 2: 5_000, 3: 10_000, 4: 30_000},
        {1: 4, 2: 1, 3: 99},
        {1: (0, 9), 2: (3, 9), 3: (0, 7), 4: (2, 8)},
    )
    assert [(cursor.level, cursor.next_offset) for cursor in cursors] == [(1, 4), (2, 3), (3, 7), (4, 2)]


def test_a_cursor_counts_the_messages_that_retention_deleted():
    cursor = LevelCursor(1, 1_000, next_offset=2)
    assert cursor.correct(5, 9) == 3
    assert cursor.correct(5, 9) == 0


def test_a_new_master_delivers_again_what_its_log_may_not_hold():
    due = {0: NOW - 60_000, 1: NOW - 5_000, 2: NOW - 4_999, 3: NOW + 1}
    assert offset_to_resume(4, 0, due.get, NOW) == 2
    assert offset_to_resume(2, 0, due.get, NOW) == 2
    assert offset_to_resume(4, 3, due.get, NOW) == 3
    assert offset_to_resume(0, 0, due.get, NOW) == 0
