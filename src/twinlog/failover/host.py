"""What the failover service needs of the broker that it runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from twinlog.failover.ack_rule import AckRule
from twinlog.failover.records import Tail
from twinlog.replication.master_epoch import MasterEpochs


@dataclass(frozen=True, slots=True)
class OwnLog:
    """How far this broker's log reaches, and whether it surely has everything that it reported."""

    start: int
    end: int
    whole: bool


class Host(Protocol):
    """One broker. Every method leaves it in a state in which stopping is safe."""

    @property
    def member(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def ha_address(self) -> str: ...
    @property
    def broker_id(self) -> int:
        """Of the configuration file: a replica's."""
        ...

    @property
    def is_master(self) -> bool: ...
    @property
    def is_unfinished(self) -> bool:
        """Whether a change of role failed on its way; `step_down` takes all steps again."""
        ...

    @property
    def is_following(self) -> bool: ...
    @property
    def epochs(self) -> MasterEpochs: ...
    def log(self) -> OwnLog: ...
    def replica_ends(self) -> Mapping[str, int]:
        """What each identified replica has reported on a connection of this epoch."""
        ...

    def lease(self, until_ms: int) -> None:
        """Acknowledge nothing after this time."""
        ...

    def see_epoch(self, epoch: int) -> None: ...
    def follow(self, address: str, ha_address: str) -> None: ...
    def join_now(self) -> None:
        """Do not wait before the next attempt to join the master."""
        ...

    def pause_sends(self, why: str | None) -> None: ...
    def acknowledge_by(self, rule: AckRule) -> None:
        """Acknowledge sends by this rule; call it again when the rule's set has changed."""
        ...

    async def promote(self, role: str, epoch: int) -> None: ...
    async def step_down(self) -> None: ...
    @property
    def kept_its_log(self) -> bool:
        """Whether its log has everything that it had when it ended, less tails that were set aside."""
        ...

    def tails(self) -> Sequence[tuple[Tail, int]]:
        """Tails that were set aside and are not in the history yet, each with the epoch of the master at that time."""
        ...

    def forget_tail(self, tail: Tail) -> None: ...
    async def cut_divergence(self, master_address: str, epoch: int) -> None:
        """If the log was found to differ from this master's: raise what restarts the broker to cut it."""
        ...
