"""Brokers that are away: not registered, or not answering. Usually that is a restart.

Readers and writers continue when the broker is back. The option `brokerWait` limits how long they wait.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from twinlog.base.clock import monotonic_ms
from twinlog.spark.errors import BrokerAway
from twinlog.telemetry.log import get_logger

T = TypeVar("T")
log = get_logger(__name__)
PAUSE_S_FIRST, PAUSE_S_MAX = 0.1, 2.0


def pause_s(failures: int) -> float:
    """The pause after so many failures in a row."""
    return min(PAUSE_S_FIRST * 2 ** min(failures - 1, 10), PAUSE_S_MAX)


def retry_while_away(
    name: str,
    ask: Callable[[], T],
    away: type[Exception] | tuple[type[Exception], ...],
    wait_ms: int,
    is_over: Callable[[], bool] = lambda: False,
) -> T:
    """What `ask` returns; called again while it raises `away`, until the wait ends or `is_over()`."""
    brokers = AwayBrokers(wait_ms)
    for failures in itertools.count(1):
        try:
            return ask()
        except away as error:
            if is_over():
                raise
            brokers.note({name: str(error)}, monotonic_ms())
        time.sleep(pause_s(failures))
    raise AssertionError("the wait ends")


class AwayBrokers:
    """The brokers that are away, and since when; times are arguments."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._since: dict[str, float] = {}

    def note(self, away: Mapping[str, str], now_ms: float) -> None:
        """Record which brokers are away now, and why; BrokerAway for one that is away for longer than the wait."""
        for name in [name for name in self._since if name not in away]:
            log.info("a broker is back", broker=name, away_ms=round(now_ms - self._since.pop(name)))
        for name, why in sorted(away.items()):
            if name not in self._since:
                self._since[name] = now_ms
                log.warning("a broker is away, waiting for it", broker=name, why=why, wait_ms_max=self._wait_ms)
            elapsed_ms = now_ms - self._since[name]
            if elapsed_ms >= self._wait_ms:
                raise BrokerAway(name, why, elapsed_ms)
