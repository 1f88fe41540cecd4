"""What a failed request means for its broker and for the route that led to it. No I/O, no clock.

A failure is one of three kinds:

    NOT_HERE    the broker did nothing: it cannot be reached, it is a replica now, it shuts down, or the route has
                no master at the moment. A switch of roles appears like this. The request can be repeated
                safely, since it cannot be stored twice.
    PERHAPS     the connection was lost or the answer did not come, so a message may be stored; or the broker refused
                it for a reason that another broker may not have.
    FINAL       everything else: the next broker would answer the same.

Most failures also mean that the route may be out of date, so the name server is asked again (see renewal_pace.py).
"""

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
_STALE_ROUTE_CODES = _NOT_HERE_CODES | _PERHAPS_ELSEWHERE_CODES - {ResponseCode.SYSTEM_ERROR}
_REFUSED_MS = 1_000  # a broker that refuses is avoided for a shorter time than one that does not answer


class FailureKind(Enum):
    NOT_HERE = "the broker did nothing"
    PERHAPS = "the message may be stored, or another broker may take it"
    FINAL = "every broker would answer the same"


def kind_of(error: Exception) -> FailureKind:
    """Which kind of failure `error` is."""
    if isinstance(error, ConnectFailed | NoMaster):
        return FailureKind.NOT_HERE
    if isinstance(error, NetError):
        return FailureKind.PERHAPS
    code = error.code if isinstance(error, BrokerRefused) else None
    if code in _NOT_HERE_CODES:
        return FailureKind.NOT_HERE
    return FailureKind.PERHAPS if code in _PERHAPS_ELSEWHERE_CODES else FailureKind.FINAL


def route_may_be_stale(error: Exception) -> bool:
    """Whether the route that led to this failure may be out of date."""
    if isinstance(error, BrokerRefused):
        return error.code in _STALE_ROUTE_CODES
    return isinstance(error, NetError | NoMaster)


def avoid_ms(error: Exception, failed_ms: int) -> int:
    """How long to prefer other brokers after `error`; `failed_ms` is for brokers that do not answer."""
    if isinstance(error, NetError):
        return failed_ms
    return min(failed_ms, _REFUSED_MS) if kind_of(error) is FailureKind.NOT_HERE else 0
