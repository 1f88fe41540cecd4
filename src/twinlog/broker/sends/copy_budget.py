"""How many bytes a peer may have copied by requests that only name a message: the core, without a clock.

A request to send a message back has a hundred bytes and writes a message of up to four megabytes again. Every host has
an account that fills by `maxSendBackBytesPerSecond`, up to BURST_S of it, and pays for each copy. The last copy may
overdraw it; the next one waits until the debt is paid, and is refused before anything is read.
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
HOSTS_MAX = 4096  # the one that was silent longest is forgotten first


@dataclass(slots=True)
class _Account:
    bytes: float
    at_ms: int


class CopyBudget:
    """Accounts by host."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def is_open(self, host: str, bytes_per_s: int, now_ms: int) -> bool:
        """Whether `host` may have a copy made; 0 bytes per second stand for no limit."""
        if not bytes_per_s:
            return True
        account, full = self._accounts.pop(host, None), bytes_per_s * BURST_S
        if account is None:
            account = _Account(full, now_ms)
            if len(self._accounts) >= HOSTS_MAX:
                del self._accounts[next(iter(self._accounts))]
        self._accounts[host] = account
        elapsed_ms = max(now_ms - account.at_ms, 0)  # a wall clock may go back
        account.bytes = min(full, account.bytes + bytes_per_s * elapsed_ms / 1000)
        account.at_ms = now_ms
        return account.bytes > 0

    def pay(self, host: str, size: int) -> None:
        account = self._accounts.get(host)
        if account is not None:
            account.bytes -= size


def check_copy(ctx: BrokerContext, connection: Connection, what: str) -> None:
    """Refuse a copy for a peer that had enough of them; a Java consumer then sends the message itself."""
    limit = ctx.settings.send_back_bytes_per_s
    host = connection.peer[0]
    if not ctx.copies.is_open(host, limit, ctx.clock_ms()):
        raise ctx.limits.refuse(ResponseCode.SYSTEM_BUSY, f"{what} for {host}", KEY, limit, "try again in a moment")
