"""What a replica knows about itself, for operators and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ReplicaStatus:
    """Kept by the replica's service; read by status handlers at any moment."""

    state: str = "waiting"  # waiting, connecting, following, refused
    reason: str = "no master is known yet"
    master_ha_address: str | None = None
    master_is_twinlog: bool | None = None
    master_end: int | None = None  # as last heard from the master
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_received: int = 0
    bytes_per_second: int = 0
    reconnects: int = 0
    refusals: int = 0
    damaged_transfers: int = 0
    _mark: tuple[int, int] = field(default=(0, 0), repr=False)

    def became(self, state: str, reason: str = "") -> None:
        self.state, self.reason = state, reason
        if state != "following":
            self.bytes_per_second = 0

    def measure(self, now_ms: int) -> None:
        """Work out the transfer rate; call about once a second."""
        then_ms, received = self._mark
        if now_ms - then_ms >= 1000:
            if then_ms:
                self.bytes_per_second = (self.bytes_received - received) * 1000 // (now_ms - then_ms)
            self._mark = (now_ms, self.bytes_received)
