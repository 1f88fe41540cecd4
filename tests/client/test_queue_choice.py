from twinlog.client.queue_choice import QueueChoice
from twinlog.wire.bodies import MessageQueue

QUEUES = [MessageQueue("T", broker, i) for broker in ("a", "b") for i in range(2)]


def test_messages_go_round_all_queues():
    choice = QueueChoice(seed=1)
    assert {choice.choose("T", QUEUES, 0) for _ in range(4)} == set(QUEUES)


def test_a_retry_goes_to_another_broker_if_there_is_one():
    choice = QueueChoice(seed=1)
    assert all(choice.choose("T", QUEUES, 0, tried=["a"]).broker_name == "b" for _ in range(8))
    assert choice.choose("T", QUEUES[:2], 0, tried=["a"]).broker_name == "a"


def test_a_broker_that_failed_is_left_alone_for_a_while():
    choice = QueueChoice(avoid_ms=100, seed=1)
    choice.failed("b", now_ms=0)
    assert {choice.choose("T", QUEUES, 99).broker_name for _ in range(8)} == {"a"}
    assert {choice.choose("T", QUEUES, 100).broker_name for _ in range(8)} == {"a", "b"}


def test_when_all_brokers_failed_they_are_tried_anyway():
    choice = QueueChoice(seed=1)
    choice.failed("a", 0)
    choice.failed("b", 0)
    assert choice.choose("T", QUEUES, 1) in QUEUES
