"""One account's view of the cluster, asked again and again; all browsers of this account look at the same one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable

from twinlog.base.clock import wall_clock_ms
from twinlog.client import Admin, BrokerRefused, Credentials
from twinlog.client.admin.calls import named_brokers
from twinlog.client.errors import REQUEST_FAILURES
from twinlog.dashboard.clients import reading_admin
from twinlog.dashboard.settings import DashboardSettings
from twinlog.failover.records import History as Failover
from twinlog.observe.cluster.cluster_view import ClusterView
from twinlog.observe.cluster.history import History
from twinlog.observe.cluster.survey import Survey
from twinlog.observe.groups.backlogs import Backlogs
from twinlog.observe.replicas.failover_groups import Place, find_groups
from twinlog.observe.replicas.metadata_rows import BrokerTables, ask_tables, changes
from twinlog.replication.metadata.kinds import GROUPS, TOPICS
from twinlog.replication.metadata.snapshots import DiffRow
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import ResponseCode

log = get_logger(__name__)
Failovers = dict[tuple[str, str], list[Failover]]  # by cluster and broker name
TABLES_AGE_MS_MAX = 5_000
FAILOVERS_AGE_MS_MAX = 5_000
METADATA_CHANGES_MAX = 200
_CHANGES_SEEN_IN = (TOPICS, GROUPS)  # offsets change all the time
_TABLES_KEPT_MAX = 64
_TABLES_REST = 20  # so many times the time that it took
_ERROR_PAUSE_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class MetadataChange:
    """A row of a broker's metadata that was seen to change; `row.left` is the value before."""

    at_ms: int
    address: str
    row: DiffRow


class Observer:
    """`view` and `history` are replaced or grow once a round; `rounds` counts them."""

    def __init__(self, settings: DashboardSettings, credentials: Credentials | None) -> None:
        self.credentials = credentials
        self.name_servers = settings.name_servers
        self.admin = reading_admin(settings, credentials)
        self.survey, self.history = Survey(self.admin), History()
        self.backlogs = Backlogs()
        self.view: ClusterView | None = None
        self.rounds = 0
        self.on_round: Callable[[Observer], None] = lambda _: None
        self.metadata_changes: deque[MetadataChange] = deque(maxlen=METADATA_CHANGES_MAX)
        self._settings = settings
        self._failovers: tuple[int, Failovers] = (0, {})
        self._tables: dict[str, BrokerTables] = {}
        self._asking: dict[str, asyncio.Task[BrokerTables]] = {}
        self._wanted, self._asked = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        async with self.admin, self.backlogs.followed(self.admin, self.masters):
            while True:
                try:
                    self.view = await self.survey.round(wall_clock_ms())
                    self.history.add(self.view)
                except Exception as error:  # this view is one of several services; the next round may succeed
                    log.exception("a round of questions failed", error=repr(error))
                    await asyncio.sleep(_ERROR_PAUSE_S)
                self.rounds += 1
                self._asked.set()
                self.on_round(self)
                self._wanted.clear()
                try:
                    async with asyncio.timeout(self._settings.poll_s):
                        await self._wanted.wait()
                except TimeoutError:
                    pass

    async def first_view(self, seconds_max: float = 5.0) -> None:
        """Return when the cluster was asked once; a page that is opened at the start has something to show then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._asked.wait()

    def masters(self) -> dict[str, str]:
        """Broker name -> address of the masters that answer."""
        brokers = self.view.brokers if self.view is not None else ()
        return {one.name: one.address for one in brokers if one.is_master and one.kind != "silent"}

    def look_now(self) -> None:
        """Begin the next round at once, since something was changed."""
        self._wanted.set()

    async def tables(self, address: str) -> BrokerTables:
        """The metadata of a broker, a few seconds old at most, and asked once however many pages want it.

        Large tables are asked for less often, so that this is a small part of what the broker does.
        """
        known = self._tables.get(address)
        if known is not None and wall_clock_ms() - known.at_ms < max(TABLES_AGE_MS_MAX, _TABLES_REST * known.took_ms):
            return known
        task = self._asking.get(address)
        if task is None:
            task = self._asking[address] = asyncio.create_task(ask_tables(self.admin, address, wall_clock_ms()))
            task.add_done_callback(lambda _: self._asking.pop(address, None))
        tables = await asyncio.shield(task)
        before = self._tables.pop(address, None)
        if before is not None and before.at_ms < tables.at_ms:
            found = changes(before, tables, _CHANGES_SEEN_IN)
            self.metadata_changes.extend(MetadataChange(tables.at_ms, address, one) for one in found)
        self._tables[address] = tables
        while len(self._tables) > _TABLES_KEPT_MAX:
            self._tables.pop(next(iter(self._tables)))
        return tables

    async def failovers(self) -> Failovers:
        """The history of groups with automatic failover; EtcdError if etcd does not answer. Empty without an etcd."""
        settings, (asked_ms, found) = self._settings.failover, self._failovers
        if settings is None:
            return {}
        if wall_clock_ms() - asked_ms > FAILOVERS_AGE_MS_MAX:
            # Nothing else of it leaves: what etcd gives here can also write there.
            found = {(one.cluster, one.name): list(one.history) for one in await find_groups(Place(settings))}
            self._failovers = (wall_clock_ms(), found)
        return found


async def probe_accounts(admin: Admin) -> bool | None:
    """Whether brokers refuse what this account asks, or what is not signed; None if none of them answers."""
    try:
        info = await admin.cluster_info()
        found = [info.broker_addr_table[name].broker_addrs for _, name in named_brokers(info)]
    except BrokerRefused as refused:
        return True if is_refusal(refused) else None
    except (*REQUEST_FAILURES, KeyError):
        return None
    for address in (address for addresses in found for _, address in sorted(addresses.items())):
        try:
            await admin.runtime_info(address)
        except BrokerRefused as refused:
            if is_refusal(refused):
                return True
        except REQUEST_FAILURES:
            continue
        else:
            return False
    return None


def is_refusal(refused: BrokerRefused) -> bool:
    """Whether the account, or the lack of one, is the reason. Java 4.9 answers a system error."""
    return refused.code == ResponseCode.NO_PERMISSION or "acl" in (refused.remark or "").lower()
