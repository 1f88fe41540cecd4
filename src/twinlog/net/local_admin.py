"""Administration from this machine only, as long as there are no accounts.

Without accounts nobody can tell an operator from a stranger, so requests that change settings, delete something, move
offsets or change roles are answered on this machine and to the addresses in `adminRequestsFrom`. What clients, replicas
and brokers send to each other is not administration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from twinlog.base.address_list import address_list, is_loopback
from twinlog.net.errors import RequestRefused
from twinlog.security.request_needs import BETWEEN_BROKERS
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode as Code
from twinlog.wire.codes import ResponseCode
from twinlog.wire.twinlog_codes import TwinlogCode

if TYPE_CHECKING:
    from twinlog.net.connection import Answer, Connection, Handler, Request
    from twinlog.net.limits import Limits

log = get_logger(__name__)
KEY = "adminRequestsFrom"

_READING = ("GET_", "QUERY_", "VIEW_")
OPEN_CODES = frozenset(
    {
        *(code for code in Code if code.name.startswith(_READING)),
        TwinlogCode.REPLICATION_STATUS,
        # of clients
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.RECALL_MESSAGE,
        Code.PULL_MESSAGE,
        Code.LITE_PULL_MESSAGE,
        Code.HEART_BEAT,
        Code.UNREGISTER_CLIENT,
        Code.CHECK_CLIENT_CONFIG,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        # of brokers
        *BETWEEN_BROKERS,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.BROKER_HEARTBEAT,
        Code.REGISTER_TOPIC_IN_NAMESRV,  # its own brokers'
        # without effect here
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    }
)
"""Requests that are not administration. All others are, also those that nobody has thought about yet."""


def is_administration(code: int) -> bool:
    return code not in OPEN_CODES


class LocalAdmin:
    """Refuses administration from elsewhere."""

    def __init__(self, allowed: str, limits: Limits, file: str) -> None:
        self._allowed = address_list(allowed)
        self._limits = limits
        self._file = file

    def check(self, request: Request) -> None:
        """RequestRefused when the peer of a request may not change anything here."""
        connection = request.connection
        host = connection.peer[0]
        if is_local(connection) or host in self._allowed:
            return
        self._limits.count(KEY)
        log.warning("administration from another machine was refused", peer=connection.peer_text, code=request.code)
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"request {request.code} from {host} is administration, which is allowed on the server's own machine only; "
            f"add {host} to {KEY} in {self._file} and restart, or switch on accounts with authenticationEnabled",
        )

    def around(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers; those of administration check first."""
        return {code: self._checked(one) if is_administration(code) else one for code, one in handlers.items()}

    def _checked(self, handler: Handler) -> Handler:
        def handle(request: Request) -> Answer | Awaitable[Answer]:
            self.check(request)
            return handler(request)

        return handle


def is_local(connection: Connection) -> bool:
    """Whether the peer is on this machine: it has a loopback address, or the one on which it reached the server."""
    host = connection.peer[0]
    return is_loopback(host) or (host != "" and host == connection.local_host)


def warn_if_open(bind_address: str, allowed: str, what: str) -> None:
    """Log at the start what a stranger can do to a server without accounts."""
    if is_loopback(bind_address):
        return
    log.warning(
        "there are no accounts: who reaches this port can " + what,
        bindAddress=bind_address or "every address",
        administration_from=f"this machine and {allowed}" if allowed else f"this machine only ({KEY} allows others)",
        advice="set authenticationEnabled=true or bindAddress=127.0.0.1; docs/security.md has more",
    )
