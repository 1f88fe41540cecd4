"""Epochs of masters: who was replaced, and what a replica accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.replication.errors import JoinRefused
from twinlog.replication.master_epoch import MasterEpochs, check_epoch


class Remembered:
    def __init__(self, now: MasterEpochs) -> None:
        self.now = now

    def saw(self, epoch: int) -> None:
        self.now = self.now.saw(epoch)


def test_a_promotion_is_above_everything_that_was_seen():
    assert MasterEpochs(2, 5, is_replica=True).promoted() == MasterEpochs(6, 6)
    assert MasterEpochs().promoted() == MasterEpochs(1, 1)


def test_a_promotion_takes_the_epoch_of_a_consensus_service_exactly():
    assert MasterEpochs(2, 5, is_replica=True).promoted(9) == MasterEpochs(9, 9)
    assert MasterEpochs(2, 5, is_replica=True).promoted(5) == MasterEpochs(5, 5)  # seen before it was taken


@pytest.mark.parametrize("epoch", [4, 2, 0])
def test_an_epoch_that_was_led_before_or_is_older_than_one_seen_is_not_taken(epoch):
    with pytest.raises(JoinRefused):
        MasterEpochs(2, 5, is_replica=True).promoted(epoch)
    with pytest.raises(JoinRefused):
        MasterEpochs(5, 5, is_replica=True).promoted(5)


def test_only_a_master_can_be_replaced():
    assert MasterEpochs(1, 2).is_replaced
    assert not MasterEpochs(1, 2).following().is_replaced
    assert not MasterEpochs(2, 2).is_replaced


def test_a_replica_refuses_a_master_that_was_replaced_and_remembers_a_newer_one():
    epochs = Remembered(MasterEpochs(0, 3, is_replica=True))
    with pytest.raises(JoinRefused, match=r"10\.0\.0\.1:10911 is master with epoch 2.*epoch 3 has replaced it"):
        check_epoch("10.0.0.1:10911", 2, epochs)
    assert epochs.now.seen == 3
    check_epoch("10.0.0.1:10911", 3, epochs)
    check_epoch("10.0.0.1:10911", 4, epochs)
    assert epochs.now == MasterEpochs(0, 4, is_replica=True)


@given(st.lists(st.one_of(st.just("promote"), st.just("follow"), st.integers(0, 50))))
def test_epochs_only_grow(events):
    epochs = MasterEpochs()
    for event in events:
        before = epochs
        if event == "promote":
            epochs = epochs.promoted()
            assert epochs.own > before.seen and not epochs.is_replaced
        else:
            epochs = epochs.following() if event == "follow" else epochs.saw(event)
        assert epochs.own >= before.own and epochs.seen >= before.seen >= before.own
