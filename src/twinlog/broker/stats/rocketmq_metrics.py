"""The broker's metrics under the names of RocketMQ 5.x, so that its dashboards work unchanged.

Everything is read at each scrape; the counters are those of `stats`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from twinlog.base.system_names import DLQ_PREFIX, RETRY_PREFIX
from twinlog.broker.stats.runtime_info import earliest_message_ms
from twinlog.broker.topics.name_rules import is_reserved

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.deferred_numbers import TimerNumbers, TransactionNumbers
    from twinlog.telemetry.metrics import Labels, Metrics, Rows

NODE = ("cluster", "node_type", "node_id")
IN = (*NODE, "topic", "is_system")
OUT = (*NODE, "topic", "consumer_group", "is_retry", "is_system")


def watch_messages(
    metrics: Metrics, ctx: BrokerContext, timers: TimerNumbers, transactions: TransactionNumbers
) -> None:
    """Register RocketMQ's own metrics of this broker."""
    view = _View(ctx)
    counted: dict[str, tuple[str, Labels, Callable[[], Rows]]] = {
        "rocketmq_messages_in": ("Messages stored for producers", IN, lambda: view.puts("count")),
        "rocketmq_throughput_in": ("Bytes stored for producers", IN, lambda: view.puts("bytes")),
        "rocketmq_messages_out": ("Messages given to consumers", OUT, lambda: view.gets("count")),
        "rocketmq_throughput_out": ("Bytes given to consumers", OUT, lambda: view.gets("bytes")),
        "rocketmq_send_to_dlq_messages": ("Dead letters", (*NODE, "consumer_group"), view.dead_letters),
        "rocketmq_commit_messages": ("Transactions committed", NODE, view.one(lambda: transactions.commits)),
        "rocketmq_rollback_messages": (
            "Transactions rolled back",
            NODE,
            view.one(lambda: transactions.rollbacks),
        ),
        "rocketmq_timer_enqueue": ("Timer messages parked", NODE, view.one(lambda: timers.enqueued)),
        "rocketmq_timer_dequeue": ("Timer messages delivered", NODE, view.one(lambda: timers.dequeued)),
    }
    for name, (text, labels, read) in counted.items():
        metrics.watch(name, text, read, kind="counter", label_names=labels)
    measured: dict[str, tuple[str, Labels, Callable[[], Rows]]] = {
        "rocketmq_consumer_lag_messages": ("Messages a group has not consumed yet", OUT, view.lags),
        "rocketmq_producer_connections": ("Connections of producers", NODE, view.one(view.producer_connections)),
        "rocketmq_consumer_connections": ("Connections of consumers", NODE, view.one(view.consumer_connections)),
        "rocketmq_topic_number": ("Topics", NODE, view.one(lambda: len(ctx.topics))),
        "rocketmq_consumer_group_number": ("Subscription groups", NODE, view.one(lambda: len(ctx.groups))),
        "rocketmq_broker_permission": ("brokerPermission", NODE, view.one(lambda: ctx.settings.permission)),
        "rocketmq_storage_size": ("Bytes used on the store's disk", NODE, view.one(view.disk_used)),
        "rocketmq_storage_flush_behind_bytes": ("Bytes not on disk yet", NODE, view.one(view.flush_behind)),
        "rocketmq_storage_dispatch_behind_bytes": ("Bytes not in queues yet", NODE, view.one(view.dispatch_behind)),
        "rocketmq_storage_message_reserve_time": ("Age of the oldest message, ms", NODE, view.one(view.oldest_age_ms)),
        "rocketmq_timing_messages": ("Timer messages that wait", NODE, view.one(lambda: timers.pending)),
        "rocketmq_timer_dequeue_latency": (
            "Timer messages are late by so many ms",
            NODE,
            view.one(lambda: timers.read_behind_ms),
        ),
        "rocketmq_timer_enqueue_lag": (
            "Timer messages not read yet",
            NODE,
            view.one(lambda: timers.offset_behind),
        ),
        "rocketmq_half_messages": ("Open transactions", NODE, view.one(lambda: transactions.open_count)),
    }
    for name, (text, labels, read) in measured.items():
        metrics.watch(name, text, read, label_names=labels)


class _View:
    """Reads the numbers of one broker."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    @property
    def _node(self) -> Labels:
        settings = self._ctx.settings
        return (settings.cluster_name, "broker", settings.broker_name)

    def one(self, read: Callable[[], float]) -> Callable[[], Rows]:
        """`read` as the only row of this node."""
        return lambda: {self._node: read()}

    def puts(self, member: str) -> Rows:
        node = self._node
        return {
            (*node, topic, self._is_system(topic)): getattr(counter, member)
            for topic, counter in self._ctx.stats.put_rows()
            if counter.count
        }

    def gets(self, member: str) -> Rows:
        return {
            self._out(topic, group): getattr(counter, member)
            for (topic, group), counter in self._ctx.stats.get_rows()
            if counter.count
        }

    def dead_letters(self) -> Rows:
        """Taken from the queues: dead letters come by send-back and by send."""
        node, store = self._node, self._ctx.store
        return {
            (*node, topic[len(DLQ_PREFIX) :]): store.max_offset(topic, 0)
            for topic in self._ctx.topics.rows
            if topic.startswith(DLQ_PREFIX)
        }

    def lags(self) -> Rows:
        return {self._out(topic, group): lag for topic, group, lag in self._lag_rows()}

    def _lag_rows(self) -> Iterator[tuple[str, str, int]]:
        store = self._ctx.store
        for key, row in self._ctx.offsets.rows.items():
            topic, _, group = key.partition("@")
            if topic in self._ctx.topics and "@" not in group:
                behind = (store.max_offset(topic, queue_id) - offset for queue_id, offset in row.items())
                yield topic, group, sum(max(lag, 0) for lag in behind)

    def producer_connections(self) -> int:
        return sum(len(clients) for clients in self._ctx.clients.producers.values())

    def consumer_connections(self) -> int:
        return sum(len(group.clients) for group in self._ctx.clients.consumers.values())

    def disk_used(self) -> int:
        return shutil.disk_usage(self._ctx.conf.store.root_dir).used

    def flush_behind(self) -> int:
        return max(self._ctx.store.log_end - self._ctx.store.flushed_end, 0)

    def dispatch_behind(self) -> int:
        return max(self._ctx.store.log_end - self._ctx.store.dispatched_end, 0)

    def oldest_age_ms(self) -> int:
        earliest_ms = earliest_message_ms(self._ctx)
        return max(self._ctx.wall_ms() - earliest_ms, 0) if earliest_ms >= 0 else 0

    def _out(self, topic: str, group: str) -> Labels:
        retry = "true" if topic.startswith(RETRY_PREFIX) else "false"
        return (*self._node, topic, group, retry, self._is_system(topic))

    def _is_system(self, topic: str) -> str:
        return "true" if is_reserved(topic, self._ctx.settings) else "false"
