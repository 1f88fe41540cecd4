"""A recovery says how far it is, and how long it will take."""

import logging

from tests.store.store_at import fill, kill, open_store

from twinlog.store.recovery.progress import MIB, Line, RecoveryProgress


def test_a_line_comes_every_three_seconds_with_rate_and_time_left():
    shown = RecoveryProgress(1000 * MIB, 1400 * MIB, 50.0)
    assert shown.reached(1010 * MIB, 52.9) is None
    assert shown.reached(1100 * MIB, 55.0) == Line(25, 100, 400, 20, 15)
    assert shown.reached(1150 * MIB, 57.0) is None
    assert shown.reached(1400 * MIB, 60.0) == Line(100, 400, 400, 40, 0)
    assert RecoveryProgress(5, 5, 0.0).reached(5, 9.0) == Line(100, 0, 0, 0, 0)


def test_a_recovery_that_takes_long_logs_how_far_it_is(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("twinlog.store.recovery.progress.LINE_S", 0.0)
    store = open_store(tmp_path)
    fill(store, 300)
    kill(store)
    with caplog.at_level(logging.INFO, "twinlog.store.recovery.recovery"), open_store(tmp_path):
        pass
    lines = [record.getMessage() for record in caplog.records if "recovering the commit log" in record.getMessage()]
    assert lines and "percent=" in lines[0] and "seconds_left=" in lines[0]
