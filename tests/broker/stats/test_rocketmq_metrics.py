"""RocketMQ's own metric names, with the labels its dashboards expect."""

from __future__ import annotations

from pathlib import Path

from tests.broker.stored import NOW, put, stored_context

from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.stats.rocketmq_metrics import watch_messages
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.telemetry.metrics import Metrics

NODE = ("DefaultCluster", "broker", "broker-a")


async def test_messages_lag_and_storage_are_shown(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        metrics = Metrics()
        deferred = DeferredServices(ctx)
        watch_messages(metrics, ctx, deferred.timers, deferred.transactions)
        for _ in range(3):
            put(ctx)
        put(ctx, topic="%DLQ%G")
        ensure_topic(ctx, "%DLQ%G", 1)
        counter = ctx.stats.puts("T")
        counter.count, counter.bytes = 3, 300
        ctx.stats.gets("T", "G").count = 1
        ctx.offsets.commit("G", "T", 0, 1, NOW)
        seen = metrics.samples()
        assert seen["rocketmq_messages_in"] == {(*NODE, "T", "false"): 3}
        assert seen["rocketmq_throughput_in"] == {(*NODE, "T", "false"): 300}
        assert seen["rocketmq_messages_out"] == {(*NODE, "T", "G", "false", "false"): 1}
        assert seen["rocketmq_consumer_lag_messages"] == {(*NODE, "T", "G", "false", "false"): 2}
        assert seen["rocketmq_send_to_dlq_messages"] == {(*NODE, "G"): 1}
        assert seen["rocketmq_storage_dispatch_behind_bytes"] == {NODE: 0}
        assert seen["rocketmq_half_messages"] == {NODE: 0}
        text = metrics.exposition().decode()
        assert 'rocketmq_messages_in_total{cluster="DefaultCluster",is_system="false",node_id="broker-a"' in text
        assert "rocketmq_storage_size{" in text
