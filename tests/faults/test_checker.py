"""The checker finds each kind of broken promise in a history into which it was planted."""

import dataclasses

import pytest
from tests.faults.checker import judge
from tests.faults.history import History, Outcome, Read, Send, body_of, read_of

from twinlog.wire.message import Message

OK, REFUSED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN


def clean() -> tuple[History, list[Read]]:
    """Two producers, each with its own queue; one send was refused, one got no answer and is not there."""
    history, reads = History(seed=7), []
    for producer in (0, 1):
        for n in range(5):
            at = 10.0 * producer + n
            history.sent(Send(producer, n, at, at + 0.5, OK, "b", producer, n))
            reads.append(Read(producer, n, producer, n))
    history.sent(Send(0, 5, 20, 21, REFUSED))
    history.sent(Send(1, 5, 20, 21, UNKNOWN))
    return history, reads


def test_a_history_without_faults_breaks_nothing():
    verdict = judge(*clean())
    assert verdict.broken == {}
    assert (verdict.acknowledged, verdict.refused, verdict.unknown, verdict.unobserved) == (10, 1, 1, 1)


def lose(history, reads):
    del reads[3]


def copy(history, reads):
    reads.append(dataclasses.replace(reads[3], queue_offset=5))


def swap(history, reads):
    reads[1], reads[2] = Read(0, 2, 0, 1), Read(0, 1, 0, 2)
    history.sends[1] = dataclasses.replace(history.sends[1], queue_offset=2)
    history.sends[2] = dataclasses.replace(history.sends[2], queue_offset=1)


def move(history, reads):
    reads[4] = dataclasses.replace(reads[4], queue_offset=9)


def promise_twice(history, reads):
    history.sends[5] = dataclasses.replace(history.sends[5], queue=0, queue_offset=0)
    reads[5] = dataclasses.replace(reads[5], queue=0, queue_offset=0)


def store_refused(history, reads):
    reads.append(Read(0, 5, 0, 5))


def damage(history, reads):
    reads.append(Read(1, 5, -1, -1, False))


def invent(history, reads):
    reads.append(Read(1, 5, 3, 1))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose, "lost"),
        (copy, "duplicated"),
        (swap, "reordered"),
        (move, "misplaced"),
        (promise_twice, "acknowledged_twice"),
        (store_refused, "stored_though_refused"),
        (damage, "damaged"),
        (invent, "invented"),
    ],
)
def test_each_broken_promise_is_found_and_no_other(plant, found):
    history, reads = clean()
    plant(history, reads)
    assert judge(history, reads).broken == {found: 1}


def test_a_send_without_an_answer_may_be_stored_late():
    history, reads = clean()
    history.sends[2] = dataclasses.replace(history.sends[2], outcome=UNKNOWN)
    reads.append(dataclasses.replace(reads.pop(2), queue_offset=7))
    assert judge(history, reads).broken == {}


def test_recovery_is_counted_from_the_fault_to_the_answer_of_a_later_send():
    history, reads = clean()
    history.fault(4.2, "kill")  # the send of 4.0 is answered at 4.5, but began before
    history.fault(100.0, "kill")
    assert judge(history, reads).recovery_s == [10.5 - 4.2, float("inf")]
    assert judge(history, reads).pause_s_max == 6.0


def test_a_body_shows_when_one_bit_of_it_is_wrong():
    body = body_of(3, 14, b"payload : with colons")
    message = Message(topic="T", body=body, queue_id=1, queue_offset=9)
    assert read_of(message) == Read(1, 9, 3, 14, True)
    for at in range(len(body)):
        spoiled = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        assert not read_of(dataclasses.replace(message, body=spoiled)).is_whole
