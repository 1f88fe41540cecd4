"""Twinlog's metrics of a broker for Prometheus: numbers it keeps anyway, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.telemetry.log import lines_left_out

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.server import Server
    from twinlog.telemetry.metrics import Metrics


def watch_broker(metrics: Metrics, ctx: BrokerContext, servers: list[Server]) -> None:
    """Register the metrics of `ctx` with `metrics`."""
    store, stats = ctx.store, ctx.stats
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        "log_start_bytes": ("Oldest byte of the commit log", lambda: store.log_start),
        "log_end_bytes": ("Next free byte of the commit log", lambda: store.log_end),
        "log_flushed_bytes": ("The commit log is durable before this byte", lambda: store.flushed_end),
        "log_dispatched_bytes": ("Queues and index have seen the log before this byte", lambda: store.dispatched_end),
        "writable": ("1 while the store takes messages", lambda: float(store.flags.writable)),
        "master": ("1 on a master, 0 on a replica", lambda: float(ctx.is_master)),
        "topics": ("Topics", lambda: len(ctx.topics)),
        "subscription_groups": ("Subscription groups", lambda: len(ctx.groups)),
        "topics_auto_created": ("Topics that sends created since the start", lambda: len(ctx.auto_topics)),
        "groups_auto_created": ("Groups that clients created since the start", lambda: len(ctx.auto_groups)),
        "connections": ("Open client connections", lambda: sum(len(server.connections) for server in servers)),
        "consumer_groups_online": ("Consumer groups with a live client", lambda: len(ctx.clients.consumers)),
        "producer_groups_online": ("Producer groups with a live client", lambda: len(ctx.clients.producers)),
        "pulls_held": ("Pulls that wait for a message", lambda: len(ctx.holds)),
    }
    for name, (text, read) in gauges.items():
        metrics.watch(f"twinlog_broker_{name}", text, read)
    counters: dict[str, tuple[str, Callable[[], float]]] = {
        "messages_in": ("Messages stored for producers", lambda: stats.totals(ctx.clock_ms()).puts),
        "bytes_in": ("Log bytes stored for producers", lambda: stats.totals(ctx.clock_ms()).put_bytes),
        "messages_out": ("Messages given to consumers", lambda: stats.totals(ctx.clock_ms()).gets),
        "sends_failed": ("Sends that were refused", lambda: stats.failed_puts),
        "pulls_found": ("Pulls that returned messages", lambda: stats.pulls_found),
        "pulls_missed": ("Pulls that returned none", lambda: stats.pulls_missed),
        "log_lines_left_out": ("Log lines that repeated themselves and were not written", lines_left_out),
    }
    for name, (text, read) in counters.items():
        metrics.watch(f"twinlog_broker_{name}", text, read, kind="counter")
    ctx.limits.watch(metrics, "twinlog_broker_refused")
    ctx.fence.watch(metrics, "twinlog_broker")
    metrics.watch(
        "twinlog_broker_topic_messages_in",
        "Messages stored, by topic",
        lambda: {(topic,): counter.count for topic, counter in stats.put_rows() if counter.count},
        kind="counter",
        label_names=("topic",),
    )
    metrics.watch(
        "twinlog_broker_group_messages_out",
        "Messages given to consumers, by topic and group",
        lambda: {key: counter.count for key, counter in stats.get_rows() if counter.count},
        kind="counter",
        label_names=("topic", "group"),
    )
