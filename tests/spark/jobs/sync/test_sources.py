"""The HA port of a master as a source of bytes."""

import socket
import time

import pytest

pytest.importorskip("pyspark")

from twinlog.spark.jobs.sync.sources import HaSource

HOUR_NS = 3_600_000_000_000


def test_a_clock_that_is_set_does_not_make_a_master_silent(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with HaSource(f"{host}:{port}", 0, None) as source:
            now = time.time_ns
            monkeypatch.setattr(time, "time_ns", lambda: now() + HOUR_NS)
            assert source.receive(0.01) == ()
