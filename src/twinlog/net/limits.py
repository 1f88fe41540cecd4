"""Limits that peers reach: one sentence for every refusal, and a count of them for Prometheus.

A limit is a setting. Its key is in the answer to the peer, in the metric's label and in the file, so that an operator
who sees one of the three finds the other two.
"""

from __future__ import annotations

from twinlog.net.errors import RequestRefused
from twinlog.telemetry.log import get_logger
from twinlog.telemetry.metrics import Metrics

log = get_logger(__name__)


class Limits:
    """How often each limit refused something, by its key."""

    def __init__(self) -> None:
        self.refused: dict[str, int] = {}

    def count(self, key: str, times: int = 1) -> None:
        """Count refusals that are answered, and logged, in another way."""
        self.refused[key] = self.refused.get(key, 0) + times

    def refuse(
        self, code: int, what: str, key: str, limit: int, advice: str, fields: dict[str, str] | None = None
    ) -> RequestRefused:
        """The refusal of `what`, to be raised; it is counted and logged."""
        self.count(key)
        log.warning("a limit refused a request", key=key, limit=limit, what=what)
        return RequestRefused(code, limit_text(what, key, limit, advice), fields)

    def left_out(self, what: str, key: str, limit: int) -> None:
        """Count and log that an answer has less in it than was asked for."""
        self.count(key)
        log.warning("a limit made an answer shorter", key=key, limit=limit, what=what)

    def watch(self, metrics: Metrics, name: str) -> None:
        metrics.watch(
            name,
            "What a limit refused, by the key of its setting",
            lambda: {(key,): count for key, count in self.refused.items()},
            kind="counter",
            label_names=("limit",),
        )


def limit_text(what: str, key: str, limit: int, advice: str) -> str:
    return f"{what}: {key} is {limit}; {advice}"
