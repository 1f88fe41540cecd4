"""What the handlers and services of one broker share.

The context is plain values and tables; it starts no task and opens no file. `settings` may be replaced
while the broker runs (UPDATE_BROKER_CONFIG), so read it where it is used and do not keep parts of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinlog.base.clock import SteadyClock, wall_clock_ms
from twinlog.broker.admin.table_work import TableWork
from twinlog.broker.sends.copy_budget import CopyBudget
from twinlog.broker.topics.auto_created import AutoCreated
from twinlog.broker.topics.name_rules import group_name_problem
from twinlog.net.limits import Limits
from twinlog.settings.broker import TOPIC_QUEUES_MAX
from twinlog.store.log.append import Appended, Draft
from twinlog.telemetry.fence import Fence
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.codes import ResponseCode
from twinlog.wire.message_id import UniqueIds
from twinlog.wire.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from twinlog.broker.clients.client_table import ClientTable
    from twinlog.broker.clients.locks import QueueLocks
    from twinlog.broker.pulls.filters.consumer_filters import ConsumerFilters
    from twinlog.broker.pulls.hold import HoldTable
    from twinlog.broker.sends.pending_sends import PendingSends
    from twinlog.broker.stats.stats import BrokerStats
    from twinlog.metadata.delay_offsets import DelayOffsetTable
    from twinlog.metadata.filters import FilterTable
    from twinlog.metadata.groups import GroupTable
    from twinlog.metadata.offsets import OffsetTable
    from twinlog.metadata.request_modes import RequestModeTable
    from twinlog.metadata.tables import MetadataTables
    from twinlog.metadata.topics import TopicTable
    from twinlog.settings.broker import BrokerSettings
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.store.message_store import MessageStore

# A message that names one of these may have to wait in another topic first.
_PARKED = re.compile(rb"(?:^|\x02)(?:DELAY|TIMER_[A-Z_]+)\x01")

PutHook = Callable[[Draft, dict[str, str]], None]
"""Looks at a message before it is stored and may redirect it: changes `draft` and the properties in place.

Raises RequestRefused(code, remark) for a message that must not be stored (a timer too far away).
"""


@dataclass(slots=True, eq=False)
class BrokerContext:
    """One broker's state, as its handlers see it."""

    conf: BrokerConf
    store: MessageStore
    tables: MetadataTables
    clients: ClientTable
    locks: QueueLocks
    holds: HoldTable
    pending_sends: PendingSends
    stats: BrokerStats
    consumer_filters: ConsumerFilters
    limits: Limits = field(default_factory=Limits)
    copies: CopyBudget = field(default_factory=CopyBudget)
    table_work: TableWork = field(default_factory=TableWork)
    fence: Fence = field(default_factory=Fence)  # around tasks whose failure must not end the broker
    clock_ms: Callable[[], int] = field(default_factory=SteadyClock)  # by which everything waits: it does not jump
    wall_ms: Callable[[], int] = wall_clock_ms  # for what is compared with stamps of records and files, or shown
    started_ms: int = 0
    unique_ids: UniqueIds = field(default_factory=UniqueIds)
    put_hooks: list[PutHook] = field(default_factory=list)  # delay levels, timer: run when DELAY or TIMER_* is there
    prepare: PutHook | None = None  # turns a message with TRAN_MSG=true into a half message
    announced: Callable[[], Awaitable[None]] | None = None  # waits until name servers know the topics of now
    topic_listeners: list[Callable[[tuple[str, ...]], None]] = field(default_factory=list)
    conf_listeners: list[Callable[[BrokerConf, BrokerConf], None]] = field(default_factory=list)  # (before, now)
    master_listeners: list[Callable[[], None]] = field(default_factory=list)  # told after each registration
    change_role: Callable[[str, int | None], Awaitable[object]] | None = None  # see ReplicationService
    term: int = 0  # how often this broker became master while running
    step_down_listeners: list[Callable[[], None]] = field(default_factory=list)  # the last to append as a master
    master_address: str | None = None  # a replica's master, from the name server's last answer
    master_ha_address: str | None = None
    auto_topics: AutoCreated = field(init=False)
    auto_groups: AutoCreated = field(init=False)

    def __post_init__(self) -> None:
        self.auto_topics, self.auto_groups = AutoCreated(self.tables.topics), AutoCreated(self.tables.groups)

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

    # -- storing -------------------------------------------------------------------------------

    def put(self, draft: Draft) -> Appended:
        """Store one message, after delay levels and timers had their say; it is readable on return.

        The caller waits for flush or replicas, if it must, through `pending_sends`.
        """
        self.redirect(draft)
        appended = self.store.append(draft)
        self.finish_appends()
        return appended

    def finish_appends(self) -> None:
        """Let readers and the flush see what was appended; after one message, or after many."""
        self.pending_sends.ask_for_flush()
        self.store.dispatch_pending()

    def redirect(self, draft: Draft, properties: dict[str, str] | None = None) -> None:
        """Let the put hooks change `draft`; `properties` are its decoded ones when the caller has them."""
        if not _PARKED.search(draft.properties):
            return
        pairs = decode_properties(draft.properties) if properties is None else properties
        for hook in self.put_hooks:
            hook(draft, pairs)
        draft.properties = encode_properties(pairs)

    # -- settings ------------------------------------------------------------------------------

    def replace_conf(self, conf: BrokerConf) -> None:
        """Go on with other settings; whoever needs to act on a difference listens in `conf_listeners`."""
        before, self.conf = self.conf, conf
        self.store.update_settings(conf.store)
        for listener in self.conf_listeners:
            listener(before, conf)

    # -- topics and groups ---------------------------------------------------------------------

    def ensure_topic(
        self, name: str, queues: int, perm: int = 6, sys_flag: int = 0, order: bool = False
    ) -> TopicConfig:
        """The topic's configuration; created with these values, saved and announced when there was none."""
        config = self.topics.get(name)
        if config is None:
            queues = max(0, min(queues, TOPIC_QUEUES_MAX))
            config = TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                topic_sys_flag=sys_flag,
                order=order,
            )
            self.topics.put(name, config, self.clock_ms())
            self.notify_topic_changed((name,))
        return config

    def ensure_group(self, name: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; None when there is none and it may not be created.

        RequestRefused when clients have created as many as they may.
        """
        config = self.groups.get(name)
        if config is None and self.settings.groups_auto_created and group_name_problem(name) is None:
            most = self.settings.auto_groups_max
            if not self.auto_groups.has_room(most):
                what, advice = f"group {name} does not exist and is not created", "create it with updateSubGroup"
                code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
                raise self.limits.refuse(code, what, "maxAutoCreatedGroups", most, f"{advice}, or raise it", {})
            config = SubscriptionGroupConfig(group_name=name)
            self.groups.put(name, config, self.clock_ms())
            self.auto_groups.add(name)
        return config

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a consumer can have a place in this queue: it is configured, or has messages from a time it was."""
        config = self.topics.get(topic)
        if config is None or queue_id < 0:
            return False
        count = min(max(config.read_queue_nums, config.write_queue_nums), TOPIC_QUEUES_MAX)
        return queue_id < count or self.store.queues.get(topic, queue_id) is not None

    def notify_topic_changed(self, names: Iterable[str]) -> None:
        """Tell whoever must hear at once that these topics were created, changed or removed."""
        changed = tuple(names)
        for listener in self.topic_listeners:
            listener(changed)
