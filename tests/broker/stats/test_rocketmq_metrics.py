"""RocketMQ's own metric names, with the labels its dashboards expect."""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.offline import Clock
from tests.broker.stored import NOW, put, stored_context

from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.sends.send import count_puts
from twinlog.broker.stats.group_lags import GroupLag, GroupLags, pause_s
from twinlog.broker.stats.rocketmq_metrics import watch_messages
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.telemetry.metrics import Metrics

NODE = ("DefaultCluster", "broker", "broker-a")


async def test_messages_lag_and_storage_are_shown(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        metrics = Metrics()
        deferred = DeferredServices(ctx)
        lags = GroupLags(ctx)
        watch_messages(metrics, ctx, deferred.timers, deferred.transactions, lags)
        for _ in range(3):
            put(ctx)
        put(ctx, topic="%DLQ%G")
        ensure_topic(ctx, "%DLQ%G", 1)
        counter = ctx.stats.puts("T")
        counter.count, counter.bytes = 3, 300
        ctx.stats.gets("T", "G").count = 1
        ctx.offsets.commit("G", "T", 0, 1, NOW)
        await lags.update()
        seen = metrics.samples()
        assert seen["rocketmq_messages_in"] == {(*NODE, "T", "normal", "false"): 3}
        assert seen["rocketmq_throughput_in"] == {(*NODE, "T", "normal", "false"): 300}
        assert seen["rocketmq_messages_out"] == {(*NODE, "T", "G", "false"): 1}
        assert seen["rocketmq_consumer_lag_messages"] == {(*NODE, "T", "G", "false", "false"): 2}
        assert seen["rocketmq_send_to_dlq_messages"] == {(*NODE, "G", "false"): 1}
        assert seen["rocketmq_storage_dispatch_behind_bytes"] == {(*NODE, "local", "disk"): 0}
        assert seen["rocketmq_half_messages"] == {NODE: 0}
        text = metrics.exposition().decode()
        assert 'rocketmq_messages_in_total{cluster="DefaultCluster",is_system="false",message_type="normal",' in text
        assert "rocketmq_storage_size_bytes{" in text


async def test_what_a_group_has_not_pulled_and_not_consumed_is_counted_with_its_age(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        for _ in range(3):
            put(ctx)
            clock.now_ms += 1_000
        ctx.offsets.commit("G", "T", 0, 1, NOW)
        ctx.offsets.commit_pull("G", "T", 0, 2)
        ctx.offsets.commit("Done", "T", 0, 3, NOW)
        lags = GroupLags(ctx)
        await lags.update()
        assert lags.rows["T", "G"] == GroupLag(behind=2, behind_ms=2_000, in_flight=1, ready=1, ready_ms=1_000)
        assert lags.rows["T", "Done"] == GroupLag(behind=0, behind_ms=0, in_flight=0, ready=0, ready_ms=0)


def test_lags_of_very_many_groups_are_computed_less_often():
    assert (pause_s(0.01), pause_s(2.0)) == (5.0, 38.0)


async def test_sizes_of_messages_become_javas_histogram(tmp_path: Path):
    with stored_context(tmp_path) as ctx:
        metrics, deferred = Metrics(), DeferredServices(ctx)
        watch_messages(metrics, ctx, deferred.timers, deferred.transactions, GroupLags(ctx))
        count_puts(ctx, "T", 3, 3 * 200)
        count_puts(ctx, "T", 1, 1024)
        count_puts(ctx, "T", 1, 1025)
        count_puts(ctx, "T", 2, 2 * 5000)
        count_puts(ctx, "Batches", 3, 3 * 1024 + 1)
        count_puts(ctx, "T", 1, 5 * 1024**2)
        text = metrics.exposition().decode()
        steps = re.findall(r'rocketmq_message_size_bucket{.*le="(.*?)".*topic="T".*} (\S+)', text)
        assert steps == [
            ("1024.0", "4.0"),
            ("4096.0", "5.0"),
            ("524288.0", "7.0"),
            ("1048576.0", "7.0"),
            ("2097152.0", "7.0"),
            ("4194304.0", "7.0"),
            ("+Inf", "8.0"),
        ]
        assert ctx.stats.puts("Batches").size_counts() == [0, 3, 0, 0, 0, 0, 0]  # a little above 1024 on average
        assert re.search(r'rocketmq_message_size_sum{.*topic="T"} 5.255529e\+06', text)
