"""What a client does after a request failed, decided without a clock, a socket or a task.

A failure is one of three kinds:

    not here    the broker did nothing: it cannot be reached, it is a replica now, it shuts down, or the route has
                no master at the moment. A switch of roles looks like this. The request is repeated until its time
                is over, since it cannot be stored twice, and `retries` does not limit it.
    perhaps     the connection was lost or the answer did not come, so a message may be stored; or a refusal that
                another broker may not repeat. Counted by `retries`; a send to a fixed queue ends here.
    final       everything else: the next broker would answer the same.

Most failures also put the route in doubt: the name server is asked again (see route_doubt.py).
"""

from collections.abc import Iterable
from enum import Enum

from twinlog.client.errors import BrokerRefused, NoMaster
from twinlog.net.errors import ConnectFailed, NetError
from twinlog.wire.codes import ResponseCode

# A replica answers sends, and pulls that it may not serve, with SYSTEM_BUSY, as Java's does; the end of a
# transaction with SLAVE_NOT_AVAILABLE. A 5.x broker that is shutting down answers GO_AWAY.
_NOT_HERE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
_PERHAPS_ELSEWHERE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
_DOUBTFUL_CODES = _NOT_HERE_CODES | _PERHAPS_ELSEWHERE_CODES - {ResponseCode.SYSTEM_ERROR}
_REFUSED_MS = 1_000  # a broker that refuses is avoided for less long than one that does not answer


class Failure(Enum):
    NOT_HERE = "the broker did nothing"
    PERHAPS = "the message may be stored, or another broker may take it"
    FINAL = "every broker would answer the same"


class Step(Enum):
    RAISE = "raise this failure as it is"
    GIVE_UP = "raise all failures so far"
    ELSEWHERE = "try another broker of the same route at once"
    NEW_ROUTE = "ask for the route again, which has pauses of its own, then try any broker"


def judge(error: Exception) -> Failure:
    """Which kind of failure `error` is."""
    if isinstance(error, ConnectFailed | NoMaster):
        return Failure.NOT_HERE
    if isinstance(error, NetError):
        return Failure.PERHAPS
    code = error.code if isinstance(error, BrokerRefused) else None
    if code in _NOT_HERE_CODES:
        return Failure.NOT_HERE
    return Failure.PERHAPS if code in _PERHAPS_ELSEWHERE_CODES else Failure.FINAL


def doubts_route(error: Exception) -> bool:
    """Whether the route that led here may be out of date."""
    if isinstance(error, BrokerRefused):
        return error.code in _DOUBTFUL_CODES
    return isinstance(error, NetError | NoMaster)


def avoid_ms(error: Exception, failed_ms: int) -> int:
    """How long to prefer other brokers after `error`; `failed_ms` is for those that do not answer."""
    if isinstance(error, NetError):
        return failed_ms
    return min(failed_ms, _REFUSED_MS) if judge(error) is Failure.NOT_HERE else 0


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
        failure = judge(error)
        refused_there = self._fixed and failure is Failure.PERHAPS and isinstance(error, BrokerRefused)
        if failure is Failure.FINAL or refused_there:
            return Step.RAISE
        self.failures.append(str(error))
        if broker_name is not None:
            self.tried.append(broker_name)
        if failure is Failure.PERHAPS:
            if self._retries_left <= 0:
                return Step.GIVE_UP
            self._retries_left -= 1
        if self.left_ms(now_ms) <= 0:
            return Step.GIVE_UP
        if not self._fixed and set(brokers) - set(self.tried):
            return Step.ELSEWHERE
        self.tried.clear()
        return Step.NEW_ROUTE
