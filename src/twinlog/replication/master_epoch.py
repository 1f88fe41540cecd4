"""The epoch of a master: each promotion raises it, so that brokers recognise a master that was replaced.

    own         the epoch that this broker took when it last became master; 0 if it was never promoted
    seen        the highest epoch of any master of this name that this broker knows of
    is_replica  whether it last ran as a replica: then a start as master is a promotion

A master with own < seen was replaced while it did not notice: it must not acknowledge anything. Java masters have no
epoch. Both numbers only grow, and are on disk before anything is done under them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from twinlog.replication.errors import JoinRefused, ReplicationError

MASTER_EPOCH = "masterEpoch"  # the name of a field in requests and answers between Twinlog brokers


class OldEpoch(JoinRefused):
    """A master that was replaced by one of a higher epoch."""

    def __init__(self, address: str, epoch: int, seen: int) -> None:
        super().__init__(
            f"{address} is master with epoch {epoch}, but a master with epoch {seen} has replaced it; it must become a "
            "replica (brokerRole=SLAVE) before anything follows it"
        )


class EpochFileBroken(ReplicationError):
    """The file with the epochs does not parse."""

    def __init__(self, path: object, cause: object) -> None:
        super().__init__(
            f"{path} does not parse: {cause}; it has the epochs of this broker's masters. Move it away, and start this "
            "broker as a replica (brokerRole=SLAVE) of the present master"
        )


class Replaced(ReplicationError):
    """This broker is configured as master, but another one has replaced it."""

    def __init__(self, broker_name: str, own: int, seen: int) -> None:
        super().__init__(
            f"a master with epoch {seen} has replaced this one, which was master of {broker_name} with epoch {own}; "
            "start it with brokerRole=SLAVE and a brokerId above 0. If that master is lost for good, make this one "
            "master afterwards with `twinlog replication change-role`"
        )


class EpochLost(ReplicationError):
    """This broker is configured as master, has no epoch file, and another broker knows of a promoted master."""

    def __init__(self, broker_name: str, epoch: int, address: str) -> None:
        super().__init__(
            f"{address} knows of a master of {broker_name} with epoch {epoch}, and config/twinlogEpoch of this one is "
            "missing: it may have been replaced. Put the file back, or start this broker with brokerRole=SLAVE and a "
            "brokerId above 0; `twinlog replication change-role` can make it master afterwards"
        )


@dataclass(frozen=True, slots=True)
class MasterEpochs:
    own: int = 0
    seen: int = 0
    is_replica: bool = False

    @property
    def is_replaced(self) -> bool:
        """Whether this broker was master until another one of a higher epoch replaced it."""
        return self.own < self.seen and not self.is_replica

    def promoted(self, epoch: int | None = None) -> MasterEpochs:
        """After this broker became master, with the epoch that a consensus service gave it, or the next one.

        OldEpoch when that is not above every epoch that it led, or below one that it has seen.
        """
        taken = self.seen + 1 if epoch is None else epoch
        if taken <= self.own or taken < self.seen:
            raise OldEpoch("this broker", taken, self.seen)
        return MasterEpochs(taken, taken)

    def following(self) -> MasterEpochs:
        return replace(self, is_replica=True)

    def saw(self, epoch: int) -> MasterEpochs:
        return replace(self, seen=max(self.seen, epoch))


class SeenEpochs(Protocol):
    """What a replica remembers of its masters' epochs."""

    @property
    def now(self) -> MasterEpochs: ...
    def saw(self, epoch: int) -> None: ...


def check_epoch(address: str, epoch: int, epochs: SeenEpochs) -> None:
    """Remember the epoch of the master at `address`; OldEpoch when a higher one was seen before."""
    if epoch < epochs.now.seen:
        raise OldEpoch(address, epoch, epochs.now.seen)
    epochs.saw(epoch)
