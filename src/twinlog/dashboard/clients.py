"""The clients of the dashboard: one that reads, for all pages, and one that may change something, for one action.

Pages and observers get a ReadingAdmin. It sends only requests that are listed here, whoever asks it to and whatever the
mode is. A Changer is given out by `Access.changer` alone, which refuses in read-only mode and after a session's end.
Must be the only module of the dashboard that makes clients: a test looks at all the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from twinlog.client import Admin, BadArgument, ClientOptions, Credentials, Message, Outgoing, Producer, SendResult
from twinlog.client.admin.calls import ADMIN_TIMEOUT_MS
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.routing.session import Session
from twinlog.dashboard.settings import DashboardSettings
from twinlog.net.connection import Connection
from twinlog.observe.cluster.survey import CONNECT_MS_MAX, REQUEST_MS_MAX
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode as Code
from twinlog.wire.command import Command
from twinlog.wire.twinlog_codes import TwinlogCode

_PRODUCER_GROUP = "TOOLS_DASHBOARD"
_RETRIES_MAX = 2**31 - 1  # it is to be delivered, however often that was tried before
_SOON = 1  # the shortest delay level

READ_CODES = frozenset(
    {
        Code.PULL_MESSAGE,
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.QUERY_CONSUMER_OFFSET,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_TOPIC_CONFIG,
        Code.GET_TOPIC_STATS_INFO,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.GET_CONSUME_STATS,
        Code.GET_BROKER_CONSUME_STATS,
        Code.QUERY_CONSUME_TIME_SPAN,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.QUERY_TOPICS_BY_CONSUMER,
        Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.GET_CONSUMER_RUNNING_INFO,
        # of a name server
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        # of a Twinlog broker
        TwinlogCode.REPLICATION_STATUS,
        TwinlogCode.LOG_DIGESTS,
    }
)


class ReadingSession(Session):
    """Refuses every request that is not known to change nothing, before anything is sent."""

    def current(self, address: str, code: int) -> Connection | None:
        check_reads(code)
        return super().current(address, code)

    async def connect(self, address: str, code: int, timeout_ms: int) -> Connection:
        check_reads(code)
        return await super().connect(address, code, timeout_ms)

    def _prepare(self, command: Command) -> None:
        """Every request of every kind passes here on its way out."""
        check_reads(command.code)
        super()._prepare(command)


class ReadingAdmin(Admin):
    """All of Admin that asks; what changes something is refused."""

    def __init__(
        self, name_servers: str, *, options: ClientOptions | None = None, timeout_ms: int = ADMIN_TIMEOUT_MS
    ) -> None:
        super().__init__(name_servers, options=options, timeout_ms=timeout_ms)
        self.session = ReadingSession(name_servers, options)
        self.queue_calls = QueueCalls(self.session)


def check_reads(code: int) -> None:
    if code not in READ_CODES:
        raise BadArgument(f"request {code} may change something, so a page does not send it outside of an action")


def reading_admin(settings: DashboardSettings, credentials: Credentials | None) -> ReadingAdmin:
    """With short time limits: a page does not wait long for a broker that hangs."""
    options = dataclasses.replace(
        settings.options,
        credentials=credentials,
        connect_timeout_ms=CONNECT_MS_MAX,
        request_timeout_ms=REQUEST_MS_MAX,
    )
    return ReadingAdmin(settings.name_servers, options=options, timeout_ms=REQUEST_MS_MAX)


class Changer:
    """Changes the cluster with the account of one visitor, while one action runs."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    async def send(self, message: Outgoing) -> SendResult:
        """Store a new message."""
        session = self.admin.session
        async with Producer(";".join(session.name_servers), _PRODUCER_GROUP, options=session.options) as producer:
            return await producer.send(message)

    async def deliver(self, group: str, queue: MessageQueue, message: Message) -> None:
        """Let a group have a message of `queue` again, through its retry topic."""
        await self.admin.queue_calls.send_back(group, queue, message, _SOON, _RETRIES_MAX)


@contextlib.asynccontextmanager
async def open_changer(settings: DashboardSettings, credentials: Credentials | None) -> AsyncIterator[Changer]:
    """With the usual time limits, and connections of its own. For `Access.changer`, which says who may have it."""
    options = dataclasses.replace(settings.options, credentials=credentials)
    async with Admin(settings.name_servers, options=options) as admin:
        yield Changer(admin)
