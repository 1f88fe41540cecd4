"""What a client does after a failure, and how often it asks for a route: decisions, with a clock of our own."""

import itertools

import pytest

from twinlog.client.errors import BrokerRefused, NoMaster, NoRoute
from twinlog.client.routing.route_doubt import PAUSE_MS_MAX, RouteDoubt
from twinlog.client.sending.retry_plan import Failure, RetryPlan, Step, avoid_ms, doubts_route, judge
from twinlog.net.errors import ConnectFailed, ConnectionLost, RequestTimeout
from twinlog.wire.codes import RequestCode, ResponseCode


def refused(code):
    return BrokerRefused(RequestCode.SEND_MESSAGE_V2, code, "no", "h:1")


UNREACHABLE, LOST, LATE = ConnectFailed("h:1", "refused"), ConnectionLost("h:1"), RequestTimeout("h:1", 310, 5)


@pytest.mark.parametrize(
    ("error", "failure", "doubted"),
    [
        (UNREACHABLE, Failure.NOT_HERE, True),
        (NoMaster("T", "a"), Failure.NOT_HERE, True),
        (refused(ResponseCode.SYSTEM_BUSY), Failure.NOT_HERE, True),
        (refused(ResponseCode.SERVICE_NOT_AVAILABLE), Failure.NOT_HERE, True),
        (refused(ResponseCode.SLAVE_NOT_AVAILABLE), Failure.NOT_HERE, True),
        (refused(ResponseCode.GO_AWAY), Failure.NOT_HERE, True),
        (LOST, Failure.PERHAPS, True),
        (LATE, Failure.PERHAPS, True),
        (refused(ResponseCode.NO_PERMISSION), Failure.PERHAPS, True),
        (refused(ResponseCode.TOPIC_NOT_EXIST), Failure.PERHAPS, True),
        (refused(ResponseCode.NOT_IN_CURRENT_UNIT), Failure.PERHAPS, True),
        (refused(ResponseCode.SYSTEM_ERROR), Failure.PERHAPS, False),
        (refused(ResponseCode.MESSAGE_ILLEGAL), Failure.FINAL, False),
        (NoRoute("T", "n:1"), Failure.FINAL, False),
    ],
)
def test_a_failure_says_whether_anything_was_stored_and_whether_the_route_is_old(error, failure, doubted):
    assert (judge(error), doubts_route(error)) == (failure, doubted)


def test_what_is_surely_not_stored_is_repeated_until_the_time_is_over():
    plan = RetryPlan(1000, retries=0, fixed=False)
    steps = [plan.after(refused(ResponseCode.SYSTEM_BUSY), "a", {"a"}, now) for now in (0, 500, 999, 1000)]
    assert steps == [Step.NEW_ROUTE, Step.NEW_ROUTE, Step.NEW_ROUTE, Step.GIVE_UP]
    assert len(plan.failures) == 4


def test_what_may_be_stored_is_repeated_as_often_as_the_user_permits():
    plan = RetryPlan(1000, retries=2, fixed=False)
    assert [plan.after(LOST, "a", {"a"}, 0) for _ in range(3)] == [Step.NEW_ROUTE, Step.NEW_ROUTE, Step.GIVE_UP]


def test_other_brokers_of_the_route_come_first_and_the_name_server_after_them():
    plan = RetryPlan(1000, retries=9, fixed=False)
    assert plan.after(UNREACHABLE, "a", {"a", "b"}, 0) is Step.ELSEWHERE
    assert plan.tried == ["a"]
    assert plan.after(UNREACHABLE, "b", {"a", "b"}, 0) is Step.NEW_ROUTE
    assert plan.tried == [], "with a new route every broker may be right again"


def test_a_fixed_queue_waits_for_its_broker_and_is_sent_once_when_the_message_may_be_stored():
    plan = RetryPlan(1000, retries=2, fixed=True)
    assert plan.after(UNREACHABLE, "a", {"a", "b"}, 0) is Step.NEW_ROUTE
    assert plan.after(LOST, "a", {"a", "b"}, 0) is Step.GIVE_UP
    assert plan.after(refused(ResponseCode.SYSTEM_ERROR), "a", {"a"}, 0) is Step.RAISE


def test_a_final_refusal_is_raised_as_it_is():
    plan = RetryPlan(1000, retries=2, fixed=False)
    assert plan.after(refused(ResponseCode.MESSAGE_ILLEGAL), "a", {"a", "b"}, 0) is Step.RAISE


def test_a_broker_that_refuses_is_avoided_for_less_long_than_one_that_does_not_answer():
    errors = [LATE, refused(ResponseCode.SYSTEM_BUSY), refused(ResponseCode.SYSTEM_ERROR)]
    assert [avoid_ms(error, 10_000) for error in errors] == [10_000, 1_000, 0]


def test_a_route_in_doubt_is_asked_for_at_once_and_then_less_and_less_often():
    doubt, now, asked = RouteDoubt(), 0, []
    while now < 60_000:
        now += doubt.reserve("T", now)
        asked.append(now)
        doubt.asked("T", now, changed=False)
    assert asked[:6] == [0, 100, 300, 700, 1500, 2500]
    assert max(b - a for a, b in itertools.pairwise(asked)) == PAUSE_MS_MAX
    assert doubt.reserve("U", now) <= 5, "each topic has a pace of its own"


@pytest.mark.parametrize(("changed", "later"), [(True, 100), (False, 20_000)])
def test_a_changed_route_or_a_quiet_while_start_over(changed, later):
    doubt = RouteDoubt()
    for now in (0, 100, 300, 700):
        doubt.asked("T", now, changed=False)
    doubt.asked("T", 1500, changed=changed)
    assert doubt.reserve("T", 1500 + later) == 0


def test_questions_about_many_topics_follow_one_another():
    doubt = RouteDoubt()
    assert [doubt.reserve(f"T{number}", 0) for number in range(1000)] == list(range(0, 5000, 5))
    assert doubt.reserve("later", 60_000) == 0
