"""How long a broker takes to serve again after kill -9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.interop.twinlog_servers import Twinlog

from bench.servers import running

RECORD_BYTES = 1024 + 300  # body, topic, properties and the fixed part, roughly


def measure(side: str, home: Path, log_mb: int, load: Callable[..., dict]) -> float:
    """Seconds from start to ready on a log of `log_mb` that nobody closed, starting the process included."""
    with Twinlog().name_server(home / "names") as names:
        with running(side, home / "broker", names.address) as (broker, _):
            messages = log_mb * 1024 * 1024 // RECORD_BYTES
            load("fill", broker.address, "Recover", "--body", 1024, "--messages", messages)
            broker.kill()
        with running(side, home / "broker", names.address) as (_, seconds):
            return seconds
