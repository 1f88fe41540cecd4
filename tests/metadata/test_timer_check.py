"""config/timercheck: what we write, and what Java reads and writes."""

from __future__ import annotations

from pathlib import Path

from twinlog.broker.sends.timer_rules import TimerRules
from twinlog.metadata import timer_check
from twinlog.metadata.timer_check import TimerProgress

NOW = 1_800_000_000_500
RULES = TimerRules()
VECTORS = Path(__file__).parents[1] / "vectors"


def test_java_reads_the_lowest_pending_offset_and_we_read_what_we_wrote():
    data = timer_check.encode_file(TimerProgress(5_000, 40, 12, 3), NOW)
    assert len(data) == 4096
    java = timer_check.decode_java_checkpoint(data)
    assert (java.read_time_ms, java.log_flush_position, java.queue_offset, java.master_queue_offset) == (
        5_000,
        0,
        12,
        12,
    )
    assert timer_check.decode_file(data) == TimerProgress(5_000, 40, 12, 3)


def test_what_java_wrote_since_counts_more_than_what_we_wrote_before():
    data = bytearray(timer_check.encode_file(TimerProgress(5_000, 40, 12, 3), NOW))
    data[:56] = timer_check.JavaCheckpoint(9_000, 520, 44, 44, 0, NOW, 4).encode()
    assert timer_check.decode_file(bytes(data)) == TimerProgress(9_000, 44, None, 4)
    assert timer_check.decode_file(b"short") is None


def test_the_check_point_of_the_real_java_class_is_read():
    body = bytes.fromhex((VECTORS / "class-timer-checkpoint.hex").read_text())
    java = timer_check.decode_java_checkpoint(body)
    assert java == timer_check.JavaCheckpoint(1_700_000_000_000, 104, 2, 3, 4, 1_700_000_000_001, 5)
    assert java.encode() == body
    assert timer_check.progress_of_master(body) == TimerProgress(1_700_000_000_000, 3, None, 5)


def test_javas_derived_files_are_deleted(tmp_path):
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / "0").write_bytes(b"x")
    (tmp_path / "timerwheel").write_bytes(b"x")
    (tmp_path / "abort").write_bytes(b"1")
    timer_check.delete_java_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["abort"]
