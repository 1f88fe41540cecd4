"""A replica that would give away what its master protects serves this machine only.

It has an account for its master, so the master checks accounts; but it checks none itself. Whoever reaches it could
read without an account what the master refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from twinlog.base.address_list import address_list
from twinlog.net.errors import RequestRefused
from twinlog.net.local_admin import is_local
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.net.connection import Answer, Handler, Request
    from twinlog.net.limits import Limits

log = get_logger(__name__)
KEY = "clientsWithoutAccountsFrom"


class Closed:
    """Refuses every request from elsewhere."""

    def __init__(self, allowed: str, limits: Limits) -> None:
        self._allowed = address_list(allowed)
        self._limits = limits

    def check(self, request: Request) -> None:
        """RequestRefused when the peer is neither on this machine nor on the list."""
        host = request.connection.peer[0]
        if is_local(request.connection) or host in self._allowed:
            return
        self._limits.count(KEY)
        log.warning("a request from another machine was refused", peer=request.connection.peer_text, code=request.code)
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"request {request.code} from {host} is refused: the master of this replica checks accounts, and this "
            "replica does not; set authenticationEnabled=true (RocketMQ 5) or aclEnable=true (4.9) here as on the "
            f"master, or list {host} in {KEY}",
        )

    def around(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers; each checks first."""
        return {code: self._checked(handler) for code, handler in handlers.items()}

    def _checked(self, handler: Handler) -> Handler:
        def handle(request: Request) -> Answer | Awaitable[Answer]:
            self.check(request)
            return handler(request)

        return handle


def warn_that_closed(allowed: str) -> None:
    """Log at the start why other machines get nothing."""
    log.warning(
        "this replica has an account for its master and checks no accounts itself: it serves this machine only",
        clients_from=f"this machine and {allowed}" if allowed else f"this machine only ({KEY} allows others)",
        advice="set authenticationEnabled=true or aclEnable=true as on the master; docs/security.md has more",
    )
