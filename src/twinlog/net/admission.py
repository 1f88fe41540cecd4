"""How many connections a server has, in all and from each address; more are closed as soon as they are accepted.

Without a limit, one host takes all descriptors of the process, and brokers and clients are locked out.
"""

from __future__ import annotations

from collections.abc import Callable

from twinlog.net.limits import Limits
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
ALL_KEY, ADDRESS_KEY = "maxConnections", "maxConnectionsPerAddress"


class Admission:
    """Counts the connections of all ports of one server."""

    def __init__(self, count_max: int = 0, per_address_max: int = 0, limits: Limits | None = None) -> None:
        self._count_max = count_max
        self._per_address_max = per_address_max
        self._limits = limits or Limits()
        self._by_host: dict[str, int] = {}
        self.count = 0

    def enter(self, host: str, *, is_proxy: bool = False) -> Callable[[], None] | None:
        """What to call, once or more often, when the connection is gone; None when it must not be admitted.

        A proxy stands for many hosts, so only the first limit holds for it.
        """
        here = self._by_host.get(host, 0)
        key, limit = "", 0
        if self._count_max and self.count >= self._count_max:
            key, limit = ALL_KEY, self._count_max
        elif self._per_address_max and here >= self._per_address_max and not is_proxy:
            key, limit = ADDRESS_KEY, self._per_address_max
        if key:
            self._limits.count(key)
            log.warning("a connection was not admitted", host=host, key=key, limit=limit, connections=self.count)
            return None
        self.count += 1
        self._by_host[host] = here + 1
        has_left = False

        def leave() -> None:
            nonlocal has_left
            if not has_left:
                has_left = True
                self._leave(host)

        return leave

    def _leave(self, host: str) -> None:
        self.count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
