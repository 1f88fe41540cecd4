"""Flushes that fail and saves that are killed: the short form."""

import pytest
from tests.faults.rows import system_calls


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_a_failed_flush_covered_is_never_acknowledged(tmp_path):
    system_calls.failed_fsync(tmp_path)


@pytest.mark.timeout(120)
def test_a_save_killed_at_any_system_call_leaves_the_old_file_or_the_new(tmp_path):
    system_calls.kill_in_save(tmp_path, calls=system_calls.CALLS)
