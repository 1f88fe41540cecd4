import pytest

from twinlog.client.errors import BrokerRefused, NoMaster, NoRoute
from twinlog.client.routing.failures import FailureKind, avoid_ms, kind_of, route_may_be_stale
from twinlog.net.errors import ConnectFailed, ConnectionLost, RequestTimeout
from twinlog.wire.codes import RequestCode, ResponseCode


def refused(code):
    return BrokerRefused(RequestCode.SEND_MESSAGE_V2, code, "no", "h:1")


UNREACHABLE, LOST, LATE = ConnectFailed("h:1", "refused"), ConnectionLost("h:1"), RequestTimeout("h:1", 310, 5)


@pytest.mark.parametrize(
    ("error", "kind", "stale"),
    [
        (UNREACHABLE, FailureKind.NOT_HERE, True),
        (NoMaster("T", "a"), FailureKind.NOT_HERE, True),
        (refused(ResponseCode.SYSTEM_BUSY), FailureKind.NOT_HERE, True),
        (refused(ResponseCode.SERVICE_NOT_AVAILABLE), FailureKind.NOT_HERE, True),
        (refused(ResponseCode.SLAVE_NOT_AVAILABLE), FailureKind.NOT_HERE, True),
        (refused(ResponseCode.GO_AWAY), FailureKind.NOT_HERE, True),
        (LOST, FailureKind.PERHAPS, True),
        (LATE, FailureKind.PERHAPS, True),
        (refused(ResponseCode.NO_PERMISSION), FailureKind.PERHAPS, True),
        (refused(ResponseCode.TOPIC_NOT_EXIST), FailureKind.PERHAPS, True),
        (refused(ResponseCode.NOT_IN_CURRENT_UNIT), FailureKind.PERHAPS, True),
        (refused(ResponseCode.SYSTEM_ERROR), FailureKind.PERHAPS, False),
        (refused(ResponseCode.MESSAGE_ILLEGAL), FailureKind.FINAL, False),
        (NoRoute("T", "n:1"), FailureKind.FINAL, False),
    ],
)
def test_a_failure_shows_whether_anything_was_stored_and_whether_the_route_may_be_stale(error, kind, stale):
    assert (kind_of(error), route_may_be_stale(error)) == (kind, stale)


def test_a_broker_that_refuses_is_avoided_for_less_long_than_one_that_does_not_answer():
    errors = [LATE, refused(ResponseCode.SYSTEM_BUSY), refused(ResponseCode.SYSTEM_ERROR)]
    assert [avoid_ms(error, 10_000) for error in errors] == [10_000, 1_000, 0]
