"""The broker's metrics under the names and labels of RocketMQ 5.5, so that its dashboards work unchanged.

Everything is read at each scrape; the counters are those of `stats`, the lags those of `group_lags`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.base.system_names import DLQ_PREFIX, RETRY_PREFIX
from twinlog.broker.stats.rpc_times import request_name, response_name
from twinlog.broker.stats.runtime_info import earliest_message_ms
from twinlog.broker.topics.name_rules import is_reserved
from twinlog.telemetry.histograms import MESSAGE_BYTES, RPC_MS
from twinlog.telemetry.rocketmq_names import (
    CONSUMERS,
    DEAD_LETTERS,
    IN,
    LAG,
    LOCAL_DISK,
    NODE,
    OUT,
    PRODUCERS,
    REMOTING,
    RPC,
    STORAGE,
    consume_mode,
    is_system_group,
    true_false,
)
from twinlog.wire.codes import version_name

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.deferred_numbers import TimerNumbers, TransactionNumbers
    from twinlog.broker.stats.group_lags import GroupLag, GroupLags
    from twinlog.telemetry.metrics import Histograms, Labels, Metrics, Rows


def watch_messages(
    metrics: Metrics, ctx: BrokerContext, timers: TimerNumbers, transactions: TransactionNumbers, lags: GroupLags
) -> None:
    """Register RocketMQ's own metrics of this broker."""
    view = _View(ctx, lags)
    _watch_counters(metrics, view, timers, transactions)
    _watch_gauges(metrics, view, ctx)
    _watch_waiting(metrics, view, timers, transactions)
    metrics.watch_histogram("rocketmq_message_size", "Sizes of messages, in bytes", MESSAGE_BYTES, view.sizes, IN)
    metrics.watch_histogram("rocketmq_rpc_latency_milliseconds", "Times of requests", RPC_MS, view.rpc_times, RPC)


def _watch_counters(metrics: Metrics, view: _View, timers: TimerNumbers, transactions: TransactionNumbers) -> None:
    counted: dict[str, tuple[str, Labels, Callable[[], Rows]]] = {
        "rocketmq_messages_in": ("Messages stored for producers", IN, lambda: view.puts("count")),
        "rocketmq_throughput_in": ("Bytes stored for producers", IN, lambda: view.puts("bytes")),
        "rocketmq_messages_out": ("Messages given to consumers", OUT, lambda: view.gets("count")),
        "rocketmq_throughput_out": ("Bytes given to consumers", OUT, lambda: view.gets("bytes")),
        "rocketmq_send_to_dlq_messages": ("Dead letters", DEAD_LETTERS, view.dead_letters),
        "rocketmq_commit_messages": ("Transactions committed", NODE, view.one(lambda: transactions.commits)),
        "rocketmq_rollback_messages": ("Transactions rolled back", NODE, view.one(lambda: transactions.rollbacks)),
        "rocketmq_timer_enqueue": ("Timer messages parked", STORAGE, view.stored(lambda: timers.enqueued)),
        "rocketmq_timer_dequeue": ("Timer messages delivered", STORAGE, view.stored(lambda: timers.dequeued)),
    }
    for name, (text, labels, read) in counted.items():
        metrics.watch(name, text, read, kind="counter", label_names=labels)


def _watch_gauges(metrics: Metrics, view: _View, ctx: BrokerContext) -> None:
    measured: dict[str, tuple[str, Labels, Callable[[], Rows]]] = {
        "rocketmq_producer_connections": ("Connections of producers", PRODUCERS, view.producers),
        "rocketmq_consumer_connections": ("Connections of consumers", CONSUMERS, view.consumers),
        "rocketmq_topic_number": ("Topics", NODE, view.one(lambda: len(ctx.topics))),
        "rocketmq_consumer_group_number": ("Subscription groups", NODE, view.one(lambda: len(ctx.groups))),
        "rocketmq_broker_permission": ("brokerPermission", NODE, view.one(lambda: ctx.settings.permission)),
        "rocketmq_storage_size_bytes": ("Bytes used on the store's disk", STORAGE, view.stored(view.disk_used)),
        "rocketmq_storage_flush_behind_bytes": ("Bytes not on disk yet", STORAGE, view.stored(view.flush_behind)),
        "rocketmq_storage_dispatch_behind_bytes": (
            "Bytes not in queues yet",
            STORAGE,
            view.stored(view.dispatch_behind),
        ),
        "rocketmq_storage_message_reserve_time_milliseconds": (
            "Age of the oldest message",
            STORAGE,
            view.stored(view.oldest_age_ms),
        ),
    }
    for name, (text, labels, read) in measured.items():
        metrics.watch(name, text, read, label_names=labels)


def _watch_waiting(metrics: Metrics, view: _View, timers: TimerNumbers, transactions: TransactionNumbers) -> None:
    """What waits for consumers, for its time or for a decision."""
    lags: dict[str, tuple[str, Callable[[GroupLag], float]]] = {
        "lag_messages": ("Messages a group has not consumed yet", lambda lag: lag.behind),
        "lag_latency_milliseconds": ("Age of the oldest of them", lambda lag: lag.behind_ms),
        "inflight_messages": ("Messages a group pulled and has not consumed yet", lambda lag: lag.in_flight),
        "ready_messages": ("Messages a group has not pulled yet", lambda lag: lag.ready),
        "queueing_latency_milliseconds": ("Age of the oldest of them", lambda lag: lag.ready_ms),
    }
    for name, (text, member) in lags.items():
        metrics.watch(f"rocketmq_consumer_{name}", text, view.lags(member), label_names=LAG)
    timed: dict[str, tuple[str, Callable[[], float]]] = {
        "rocketmq_timing_messages": ("Timer messages that wait", lambda: timers.pending),
        "rocketmq_timer_dequeue_latency_milliseconds": ("Timer messages are so late", lambda: timers.read_behind_ms),
        "rocketmq_timer_enqueue_lag": ("Timer messages not read yet", lambda: timers.offset_behind),
    }
    for name, (text, read) in timed.items():
        metrics.watch(name, text, view.stored(read), label_names=STORAGE)
    text = "Open transactions"
    metrics.watch("rocketmq_half_messages", text, view.one(lambda: transactions.open_count), label_names=NODE)


class _View:
    """Reads the numbers of one broker."""

    def __init__(self, ctx: BrokerContext, lags: GroupLags) -> None:
        self._ctx, self._lags = ctx, lags

    @property
    def _node(self) -> Labels:
        settings = self._ctx.settings
        return (settings.cluster_name, "broker", settings.broker_name)

    def one(self, read: Callable[[], float]) -> Callable[[], Rows]:
        """`read` as the only row of this node."""
        return lambda: {self._node: read()}

    def stored(self, read: Callable[[], float]) -> Callable[[], Rows]:
        """`read` as the only row of this node's store."""
        return lambda: {(*self._node, *LOCAL_DISK): read()}

    # -- messages ------------------------------------------------------------------------------

    def puts(self, member: str) -> Rows:
        return {
            self._in(topic): getattr(counter, member) for topic, counter in self._ctx.stats.put_rows() if counter.count
        }

    def sizes(self) -> Histograms:
        return {
            self._in(topic): (counter.size_counts(), float(counter.bytes))
            for topic, counter in self._ctx.stats.put_rows()
            if counter.count
        }

    def gets(self, member: str) -> Rows:
        return {
            (*self._node, topic, group, self._is_system(topic, group)): getattr(counter, member)
            for (topic, group), counter in self._ctx.stats.get_rows()
            if counter.count
        }

    def rpc_times(self) -> Histograms:
        node = self._node
        return {
            (
                *node,
                REMOTING,
                request_name(request_code),
                response_name(response_code),
                true_false(held),
                "success",  # an answer that cannot be written ends its connection
            ): (row.counts, row.sum_s * 1000)
            for (request_code, response_code, held), row in list(self._ctx.stats.rpc.rows.items())
            if sum(row.counts)
        }

    def dead_letters(self) -> Rows:
        """Taken from the queues: dead letters come by send-back and by send."""
        node, store = self._node, self._ctx.store
        groups = {topic: topic[len(DLQ_PREFIX) :] for topic in self._ctx.topics.rows if topic.startswith(DLQ_PREFIX)}
        return {
            (*node, group, true_false(is_system_group(group))): store.max_offset(topic, 0)
            for topic, group in groups.items()
        }

    def lags(self, member: Callable[[GroupLag], float]) -> Callable[[], Rows]:
        return lambda: {
            (
                *self._node,
                topic,
                group,
                true_false(topic.startswith(RETRY_PREFIX)),
                self._is_system(topic, group),
            ): member(lag)
            for (topic, group), lag in self._lags.rows.items()
        }

    # -- clients -------------------------------------------------------------------------------

    def producers(self) -> Rows:
        clients = [client for group in self._ctx.clients.producers.values() for client in group.values()]
        found = Counter((client.language.lower(), version_name(client.version).lower()) for client in clients)
        return {(*self._node, language, version, REMOTING): count for (language, version), count in found.items()}

    def consumers(self) -> Rows:
        rows: dict[Labels, float] = {}
        for group in self._ctx.clients.consumers.values():
            mode, system = consume_mode(group.consume_type), true_false(is_system_group(group.name))
            clients = group.clients.values()
            found = Counter((client.language.lower(), version_name(client.version).lower()) for client in clients)
            for (language, version), count in found.items():
                rows[(*self._node, group.name, language, version, mode, REMOTING, system)] = count
        return rows

    # -- the store -----------------------------------------------------------------------------

    def disk_used(self) -> int:
        return shutil.disk_usage(self._ctx.conf.store.root_dir).used

    def flush_behind(self) -> int:
        return max(self._ctx.store.log_end - self._ctx.store.flushed_end, 0)

    def dispatch_behind(self) -> int:
        return max(self._ctx.store.log_end - self._ctx.store.dispatched_end, 0)

    def oldest_age_ms(self) -> int:
        earliest_ms = earliest_message_ms(self._ctx)
        return max(self._ctx.wall_ms() - earliest_ms, 0) if earliest_ms >= 0 else 0

    # -- labels --------------------------------------------------------------------------------

    def _in(self, topic: str) -> Labels:
        """The type is what the topic declares: to look for it in each message would cost every send."""
        config = self._ctx.topics.get(topic)
        kind = config.attributes.get("message.type", "NORMAL") if config is not None else "NORMAL"
        return (*self._node, topic, kind.lower(), self._is_system(topic))

    def _is_system(self, topic: str, group: str = "") -> str:
        return true_false(is_reserved(topic, self._ctx.settings) or is_system_group(group))
