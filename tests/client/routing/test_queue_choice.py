from twinlog.client.routing.queue_choice import QueueChoice
from twinlog.client.routing.routes import TopicRoute
from twinlog.wire.bodies import MessageQueue

QUEUES = tuple(MessageQueue("T", broker, i) for broker in ("a", "b") for i in range(2))
ROUTE = TopicRoute("T", QUEUES, brokers={"a": {0: "h:1"}, "b": {0: "h:2", 1: "h:3"}})


def test_messages_go_round_all_queues():
    choice = QueueChoice(seed=1)
    assert {choice.choose(ROUTE, 0) for _ in range(4)} == set(QUEUES)


def test_a_retry_goes_to_another_broker_if_there_is_one():
    choice = QueueChoice(seed=1)
    assert all(choice.choose(ROUTE, 0, tried=["a"]).broker_name == "b" for _ in range(8))
    assert choice.choose(TopicRoute("T", QUEUES[:2]), 0, tried=["a"]).broker_name == "a"


def test_a_broker_that_failed_is_left_alone_for_a_while():
    choice = QueueChoice(seed=1)
    choice.failed("h:2", until_ms=100)
    assert {choice.choose(ROUTE, 99).broker_name for _ in range(8)} == {"a"}
    assert {choice.choose(ROUTE, 100).broker_name for _ in range(8)} == {"a", "b"}


def test_a_broker_with_a_new_master_is_not_left_alone_for_the_failures_of_the_old_one():
    choice = QueueChoice(seed=1)
    choice.failed("h:2", until_ms=100)
    switched = TopicRoute("T", QUEUES, brokers={"a": {0: "h:1"}, "b": {0: "h:3", 2: "h:2"}})
    assert {choice.choose(switched, 1).broker_name for _ in range(8)} == {"a", "b"}


def test_when_all_brokers_failed_they_are_tried_anyway():
    choice = QueueChoice(seed=1)
    choice.failed("h:1", 100)
    choice.failed("h:2", 100)
    assert choice.choose(ROUTE, 1) in QUEUES
