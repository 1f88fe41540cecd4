"""What a producer does after a failure: decisions, with a clock of our own."""

from twinlog.client.errors import BrokerRefused
from twinlog.client.sending.retry_plan import RetryPlan, Step
from twinlog.net.errors import ConnectFailed, ConnectionLost
from twinlog.wire.codes import RequestCode, ResponseCode


def refused(code):
    return BrokerRefused(RequestCode.SEND_MESSAGE_V2, code, "no", "h:1")


UNREACHABLE, LOST = ConnectFailed("h:1", "refused"), ConnectionLost("h:1")


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
