"""What a replica knows about itself, for operators and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class FollowState(StrEnum):
    """How far a replica is on its way to its master; `replica_service.py` draws the transitions."""

    WAITING = "waiting"  # for the address of a master
    CONNECTING = "connecting"
    FOLLOWING = "following"
    REFUSED = "refused"  # joining would lose or mix data; tried again now and then


@dataclass(slots=True)
class ReplicaStatus:
    """Kept by the replica's service; read by status handlers at any moment."""

    state: FollowState = FollowState.WAITING
    reason: str = "no master is known yet"
    master_ha_address: str | None = None
    master_is_twinlog: bool | None = None
    master_end: int | None = None  # as the master reported it last
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_received: int = 0
    bytes_per_second: int = 0
    reconnects: int = 0
    refusals: int = 0
    damaged_transfers: int = 0
    _mark: tuple[int, int] = field(default=(0, 0), repr=False)

    @property
    def is_following(self) -> bool:
        return self.state is FollowState.FOLLOWING

    def wait_for_address(self) -> None:
        self._become(FollowState.WAITING, "no master is known yet")

    def connect(self, reason: str) -> None:
        """Not yet connected, or no longer: `reason` names the master, or why its link was lost."""
        self._become(FollowState.CONNECTING, reason)

    def follow(self, warning: str = "") -> None:
        self._become(FollowState.FOLLOWING, warning)
        self.reconnects += 1

    def refuse(self, reason: str) -> None:
        self._become(FollowState.REFUSED, reason)
        self.refusals += 1

    def measure(self, now_ms: int) -> None:
        """Compute the transfer rate; call about once a second."""
        then_ms, received = self._mark
        if now_ms - then_ms >= 1000:
            if then_ms:
                self.bytes_per_second = (self.bytes_received - received) * 1000 // (now_ms - then_ms)
            self._mark = (now_ms, self.bytes_received)

    def _become(self, state: FollowState, reason: str) -> None:
        self.state, self.reason = state, reason
        if state is not FollowState.FOLLOWING:
            self.bytes_per_second = 0
