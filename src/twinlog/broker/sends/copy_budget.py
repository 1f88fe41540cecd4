"""How many bytes per second a host may make the broker copy, by requests that only name a message.

A request to send a message back has a hundred bytes and writes a message of up to four megabytes again. So each host
has a budget in bytes. It grows by `maxSendBackBytesPerSecond`, up to BURST_S seconds of it, and each copy takes its
size from it. The last copy may make it negative; while it is, further copies are refused before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Connection

KEY = "maxSendBackBytesPerSecond"
BURST_S = 4
HOSTS_MAX = 4096  # the host whose last copy is oldest is dropped first


@dataclass(slots=True)
class _Budget:
    bytes: float
    at_ms: int


class CopyBudget:
    """The budget of each host."""

    def __init__(self) -> None:
        self._budgets: dict[str, _Budget] = {}

    def is_open(self, host: str, bytes_per_s: int, now_ms: int) -> bool:
        """Whether `host` may have a copy made; 0 bytes per second mean no limit."""
        if not bytes_per_s:
            return True
        budget, full = self._budgets.pop(host, None), bytes_per_s * BURST_S
        if budget is None:
            budget = _Budget(full, now_ms)
            if len(self._budgets) >= HOSTS_MAX:
                del self._budgets[next(iter(self._budgets))]
        self._budgets[host] = budget
        elapsed_ms = max(now_ms - budget.at_ms, 0)  # a wall clock may go back
        budget.bytes = min(full, budget.bytes + bytes_per_s * elapsed_ms / 1000)
        budget.at_ms = now_ms
        return budget.bytes > 0

    def pay(self, host: str, size: int) -> None:
        budget = self._budgets.get(host)
        if budget is not None:
            budget.bytes -= size


def check_copy(ctx: BrokerContext, connection: Connection, what: str) -> None:
    """Refuse a copy when the budget of the peer's host is used up; a Java consumer then sends the message itself."""
    limit = ctx.settings.send_back_bytes_per_s
    host = connection.peer[0]
    if not ctx.copy_budget.is_open(host, limit, ctx.clock_ms()):
        raise ctx.limits.refuse(ResponseCode.SYSTEM_BUSY, f"{what} for {host}", KEY, limit, "try again in a moment")
