"""What the handlers and services of one broker share.

The context is plain values and tables; it starts no task and opens no file. `settings` may be replaced
while the broker runs (UPDATE_BROKER_CONFIG), so read it where it is used and do not keep parts of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlog.base.clock import SteadyClock, monotonic_ms, wall_clock_ms
from twinlog.broker.disk_work import DiskWork
from twinlog.broker.table_work import TableWork
from twinlog.net.limits import Limits
from twinlog.replication.master.guard import MasterGuard
from twinlog.settings.broker import TOPIC_QUEUES_MAX
from twinlog.store.log.append import Appended, Draft
from twinlog.telemetry.fence import Fence
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import BUSY_REMARK
from twinlog.wire.properties import decode_properties, encode_properties
from twinlog.wire.values.message_id import UniqueIds

if TYPE_CHECKING:
    from twinlog.broker.clients.client_table import ClientTable
    from twinlog.broker.clients.lock_table import LockTable
    from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
    from twinlog.broker.pulls.hold import HoldTable
    from twinlog.broker.sends.copy_budget import CopyBudget
    from twinlog.broker.sends.pending_sends import PendingSends
    from twinlog.broker.stats.stats import BrokerStats
    from twinlog.broker.topics.auto_created import AutoCreated
    from twinlog.metadata.delay_offsets import DelayOffsetTable
    from twinlog.metadata.filters import FilterTable
    from twinlog.metadata.groups import GroupTable
    from twinlog.metadata.offsets import OffsetTable
    from twinlog.metadata.request_modes import RequestModeTable
    from twinlog.metadata.tables import MetadataTables
    from twinlog.metadata.topics import TopicTable
    from twinlog.net.connection import Connection
    from twinlog.security.gate import Gate
    from twinlog.settings.broker import BrokerSettings
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.message_store import MessageStore
    from twinlog.wire.sends.end_headers import UnhandledEnd

# A message with one of these properties may have to wait in another topic first.
_DELAY, _TIMER = b"DELAY\x01", b"TIMER_"
_PARKED = re.compile(rb"(?:^|\x02)(?:DELAY|TIMER_[A-Z_]+)\x01")

PutHook = Callable[[Draft, dict[str, str]], None]
"""Runs before a message is stored and may redirect it: changes `draft` and the properties in place.

Raises RequestRefused(code, remark) for a message that must not be stored (a timer too far in the future).
"""

EndTogether = Callable[["Connection", Sequence["UnhandledEnd"]], None]
"""Ends the transactions that oneway requests of one connection name; they came in one chunk."""


def _do_nothing() -> None: ...


def _unexplained() -> None: ...


async def _not_repaired(physical_offset: int, seconds_max: float) -> None: ...


def _ignore(level: int) -> None: ...


@dataclass(slots=True, eq=False)
class BrokerContext:
    """One broker's state, shared by its handlers and services."""

    conf: BrokerConf
    store: MessageStore
    tables: MetadataTables
    clients: ClientTable
    locks: LockTable
    holds: HoldTable
    pending_sends: PendingSends
    stats: BrokerStats
    consumer_filters: ConsumerFilters
    copy_budget: CopyBudget
    auto_topics: AutoCreated
    auto_groups: AutoCreated
    gate: Gate | None = None  # decides which requests may go on; None: all
    limits: Limits = field(default_factory=Limits)
    guard: MasterGuard = field(default_factory=lambda: MasterGuard(monotonic_ms))  # may this master acknowledge now?
    table_work: TableWork = field(default_factory=TableWork)
    disk_work: DiskWork = field(default_factory=DiskWork)
    fence: Fence = field(default_factory=Fence)  # around tasks whose failure must not end the broker
    clock_ms: Callable[[], int] = field(default_factory=SteadyClock)  # for delays and timeouts: it does not jump
    wall_ms: Callable[[], int] = wall_clock_ms  # compared with stamps of records and files, or shown
    clock_moves: list[Callable[[], None]] = field(default_factory=list)  # called after a test has moved the clock
    started_ms: int = 0
    unique_ids: UniqueIds = field(default_factory=UniqueIds)
    put_hooks: list[PutHook] = field(default_factory=list)  # delay levels, timers; run if DELAY or TIMER_* is set
    delay_level_max: int = 0  # of the hook for delay levels, if that is the only one
    wake_delay_level: Callable[[int], None] = _ignore  # a message of this level was parked without the hook
    prepare: PutHook | None = None  # turns a message with TRAN_MSG=true into a half message
    end_together: EndTogether | None = None  # ends transactions as oneway requests of one connection ask for
    wait_until_announced: Callable[[], Awaitable[None]] | None = None  # name servers know the current topics then
    topic_listeners: list[Callable[[tuple[str, ...]], None]] = field(default_factory=list)
    master_listeners: list[Callable[[], None]] = field(default_factory=list)  # called after each registration
    wake_replicas: Callable[[], None] = _do_nothing  # this and the next two are set by ReplicationService
    expect_reports: Callable[[], None] = _do_nothing
    change_role: Callable[[str, int | None], Awaitable[object]] | None = None
    wait_for_repair: Callable[[int, float], Awaitable[None]] = _not_repaired  # set by RepairService
    term: int = 0  # how often this broker became master while running
    step_down_listeners: list[Callable[[], None]] = field(default_factory=list)  # may append for the last time
    master_is_chosen: bool = False  # automatic failover names the master; name servers are not asked for it
    why_refused: Callable[[], str | None] = _unexplained  # why sends are not acknowledged; set by automatic failover
    master_address: str | None = None  # a replica's master, from the name server's last answer
    master_ha_address: str | None = None

    @property
    def settings(self) -> BrokerSettings:
        return self.conf.broker

    @property
    def is_master(self) -> bool:
        return self.conf.broker.broker_role != "SLAVE"

    @property
    def topics(self) -> TopicTable:
        return self.tables.topics

    @property
    def groups(self) -> GroupTable:
        return self.tables.groups

    @property
    def offsets(self) -> OffsetTable:
        return self.tables.offsets

    @property
    def delay_offsets(self) -> DelayOffsetTable:
        return self.tables.delay_offsets

    @property
    def filters(self) -> FilterTable:
        return self.tables.filters

    @property
    def request_modes(self) -> RequestModeTable:
        return self.tables.request_modes

    @property
    def busy_remark(self) -> str:
        """The remark to a request that only a master takes: Java's words, and the reason if there is one."""
        why = self.why_refused()
        return BUSY_REMARK if why is None else f"{BUSY_REMARK}: {why}"

    async def until_confirmed(self) -> None:
        """Return once it is not in doubt whether this broker is still the master: at once, nearly always.

        Whatever appends to the log by itself waits here. The log of a master that was replaced would differ from the
        new one's, and this broker could not follow it before an operator has cut it.
        """
        while not self.guard.is_valid:
            confirmed = asyncio.Event()
            self.guard.when_confirmed(confirmed.set)
            await confirmed.wait()

    # -- storing -------------------------------------------------------------------------------

    def put(self, draft: Draft) -> Appended:
        """Store one message, parked if it asks for a delay; readers see it on return, with SYNC_FLUSH after the flush.

        The caller waits for flush or replicas, if it must, through `pending_sends`.
        """
        self.redirect(draft)
        appended = self.store.append(draft)
        self.finish_appends()
        return appended

    def finish_appends(self) -> None:
        """After appends outside a send, one or many: ask for the flush that a send would ask for, and publish."""
        self.pending_sends.ask_for_flush()
        self.publish_appends()

    def publish_appends(self) -> None:
        """Make appended records known, in this order; connections call it after each chunk of requests.

        1. Replicas get the bytes first, so that they write theirs while the queues are written here.
        2. Queues and index get the records, then held pulls are woken. With SYNC_FLUSH, only durable records are.
        3. If sends wait for replicas, the loop polls for their reports, which are due about now.

        A chunk's answers are written before this, so its producers wait for none of it.
        """
        self.wake_replicas()
        self.store.dispatch_pending()
        self.expect_reports()

    def redirect(self, draft: Draft, properties: dict[str, str] | None = None) -> None:
        """Run the put hooks on `draft` if it asks for a delay; `properties` are its decoded ones, if at hand."""
        text = draft.properties
        if (_DELAY not in text and _TIMER not in text) or not _PARKED.search(text):  # the search alone takes 4 us
            return
        pairs = decode_properties(draft.properties) if properties is None else properties
        for hook in self.put_hooks:
            hook(draft, pairs)
        draft.properties = encode_properties(pairs)

    # -- settings ------------------------------------------------------------------------------

    def replace_conf(self, conf: BrokerConf) -> None:
        """Replace the settings while the broker runs."""
        self.conf = conf
        self.store.update_settings(conf.store)

    # -- topics --------------------------------------------------------------------------------

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """The queue as answers name it: with the name of this broker."""
        return MessageQueue(topic, self.settings.broker_name, queue_id)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a consumer can have an offset in this queue: it is configured, or has messages from earlier."""
        config = self.topics.get(topic)
        if config is None or queue_id < 0:
            return False
        count = min(max(config.read_queue_nums, config.write_queue_nums), TOPIC_QUEUES_MAX)
        return queue_id < count or self.store.queues.get(topic, queue_id) is not None

    def notify_topic_changed(self, names: Iterable[str]) -> None:
        """Call the listeners of topics that were created, changed or removed."""
        changed = tuple(names)
        for listener in self.topic_listeners:
            listener(changed)
