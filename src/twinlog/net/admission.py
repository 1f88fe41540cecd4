"""How many connections a server has, in all and from each address; more are closed as soon as they are accepted.

Without a limit, one host takes all descriptors of the process, and brokers and clients are locked out.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

from twinlog.base.address_list import is_loopback
from twinlog.net.limits import Limits
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
ALL_KEY, ADDRESS_KEY = "maxConnections", "maxConnectionsPerAddress"
LOCAL_PLACES = 16  # beyond the first limit, for this machine: an operator gets in, whoever takes all other places
_FILES_KEPT = 512  # or a quarter of what the process may open: for the files of a store, and for connections to others


class Admission:
    """Counts the connections of all ports of one server."""

    def __init__(
        self, count_max: int = 0, per_address_max: int = 0, limits: Limits | None = None, *, local_places: int = 0
    ) -> None:
        self._count_max = _possible(count_max)
        self._local_places = local_places
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
        if self._count_max and self.count >= self._count_max + (self._local_places if is_loopback(host) else 0):
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


def _possible(count_max: int) -> int:
    """`count_max`, or fewer if the process may not open so many files; 0 stays: the operator wants no limit."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count_max if files == resource.RLIM_INFINITY else min(count_max, files - min(_FILES_KEPT, files // 4))
