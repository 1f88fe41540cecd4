"""What a producer does after an attempt to send failed: raise, try elsewhere, or ask for the route again.

A failure that stored nothing is repeated until the time is over, and `retries` does not limit it. A failure that may
have stored the message is counted by `retries`; a send to a fixed queue ends there. A final failure is raised at once.
`routing/failures.py` defines these kinds. No I/O, no clock.
"""

from collections.abc import Iterable
from enum import Enum

from twinlog.client.errors import BrokerRefused
from twinlog.client.routing.failures import FailureKind, kind_of


class Step(Enum):
    RAISE = "raise this failure as it is"
    GIVE_UP = "raise all failures so far"
    ELSEWHERE = "try another broker of the same route at once"
    NEW_ROUTE = "ask for the route again, which has pauses of its own, then try any broker"


class RetryPlan:
    """The attempts of one request until `deadline_ms`."""

    def __init__(self, deadline_ms: int, *, retries: int, fixed: bool) -> None:
        self.deadline_ms = deadline_ms
        self.tried: list[str] = []  # brokers to prefer others to, since the route was last asked for
        self.failures: list[str] = []
        self._retries_left = 0 if fixed else retries
        self._fixed = fixed  # the queue is chosen: its order must stay, so no other broker will do

    def left_ms(self, now_ms: int) -> int:
        return self.deadline_ms - now_ms

    def after(self, error: Exception, broker_name: str | None, brokers: Iterable[str], now_ms: int) -> Step:
        """What to do after `error` of `broker_name`; `brokers` are those that the route names for writing."""
        kind = kind_of(error)
        refused_there = self._fixed and kind is FailureKind.PERHAPS and isinstance(error, BrokerRefused)
        if kind is FailureKind.FINAL or refused_there:
            return Step.RAISE
        self.failures.append(str(error))
        if broker_name is not None:
            self.tried.append(broker_name)
        if kind is FailureKind.PERHAPS:
            if self._retries_left <= 0:
                return Step.GIVE_UP
            self._retries_left -= 1
        if self.left_ms(now_ms) <= 0:
            return Step.GIVE_UP
        if not self._fixed and set(brokers) - set(self.tried):
            return Step.ELSEWHERE
        self.tried.clear()
        return Step.NEW_ROUTE
