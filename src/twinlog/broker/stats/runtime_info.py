"""The broker's state as a table of texts (28), which mqadmin brokerStatus and clusterList show."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog import __version__
from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.store.log.commit_log import disk_used_ratio
from twinlog.wire.bodies import KVTable, encode_body
from twinlog.wire.codes import VERSION, VERSION_NAME, RequestCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.stats.deferred_numbers import TimerNumbers
    from twinlog.broker.stats.stats import BrokerTotals
    from twinlog.net.connection import Handler, Request
    from twinlog.wire.command import Command

# Java's brokers have thread pools with queues in front; here every request is handled when it arrives.
POOLS = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
TRANSACTION_CAPACITY = 100_000
BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def handlers(ctx: BrokerContext, timers: TimerNumbers) -> dict[int, Handler]:
    def show(request: Request) -> Command:
        return request.reply(body=encode_body(KVTable(table=runtime_table(ctx, timers))))

    return {RequestCode.GET_BROKER_RUNTIME_INFO: show}


def runtime_table(ctx: BrokerContext, timers: TimerNumbers) -> dict[str, str]:
    """Every key that Java's broker has, and some of our own, sorted."""
    now_ms = ctx.clock_ms()
    table = {
        "brokerVersionDesc": VERSION_NAME,
        "brokerVersion": str(VERSION),
        "twinlogVersion": __version__,
        "brokerActive": _boolean(ctx.is_master),
        "bootTimestamp": str(ctx.started_ms),
        "runtime": running_time(now_ms - ctx.started_ms),
        "startAcceptSendRequestTimeStamp": str(ctx.settings.send_accepted_from_ms),
        **_rates(ctx),
        **_totals(ctx, now_ms),
        **_log(ctx),
        **_disks(ctx),
        **_pools(),
        **_waiting(ctx, timers),
        **_failed_tasks(ctx, now_ms),
    }
    return dict(sorted(table.items()))


def _rates(ctx: BrokerContext) -> dict[str, str]:
    def rates(*members: str) -> str:
        return " ".join(f"{sum(ctx.stats.per_second(m, seconds) for m in members):.2f}" for seconds in (10, 60, 600))

    return {
        "putTps": rates("puts") + " ",
        "getTransferredTps": rates("gets") + " ",
        "getFoundTps": rates("found") + " ",
        "getMissTps": rates("missed") + " ",
        "getTotalTps": rates("found", "missed"),
    }


def _totals(ctx: BrokerContext, now_ms: int) -> dict[str, str]:
    now: BrokerTotals = ctx.stats.totals(now_ms)
    times = ctx.stats.put_times
    before, morning = ctx.stats.yesterday_morning, ctx.stats.today_morning
    return {
        "putMessageTimesTotal": str(now.puts),
        "putMessageSizeTotal": str(now.put_bytes),
        "putMessageAverageSize": str(now.put_bytes / now.puts if now.puts else 0.0),
        "putMessageFailedTimes": str(ctx.stats.failed_puts),
        "putMessageEntireTimeMax": str(int(times.longest_s * 1000)),
        "getMessageEntireTimeMax": str(int(ctx.stats.longest_get_s * 1000)),
        "putLatency99": f"{times.percentile_ms(0.99):.2f}",
        "putLatency999": f"{times.percentile_ms(0.999):.2f}",
        "putMessageDistributeTime": times.by_java_s_buckets(),
        "msgPutTotalYesterdayMorning": str(before.puts),
        "msgPutTotalTodayMorning": str(morning.puts),
        "msgPutTotalTodayNow": str(now.puts),
        "msgGetTotalYesterdayMorning": str(before.gets),
        "msgGetTotalTodayMorning": str(morning.gets),
        "msgGetTotalTodayNow": str(now.gets),
    }


def _log(ctx: BrokerContext) -> dict[str, str]:
    store = ctx.store
    return {
        "commitLogMinOffset": str(store.log_start),
        "commitLogMaxOffset": str(store.log_end),
        "earliestMessageTimeStamp": str(earliest_message_ms(ctx)),
        "dispatchBehindBytes": str(max(store.log_end - store.dispatched_end, 0)),
        "dispatchMaxBuffer": "0",
        "pageCacheLockTimeMills": "0",
        "remainTransientStoreBufferNumbs": str(2**31 - 1),  # in Java: no such buffers in use
        "remainHowManyDataToFlush": readable_bytes(max(store.log_end - store.flushed_end, 0)),
    }


def earliest_message_ms(ctx: BrokerContext) -> int:
    """When the oldest message in the log was stored; -1 without any."""
    first = ctx.store.message_at(ctx.store.log_start) if ctx.store.log_end > ctx.store.log_start else None
    return first.store_timestamp if first is not None else -1


def _disks(ctx: BrokerContext) -> dict[str, str]:
    settings = ctx.conf.store
    usage = {path: shutil.disk_usage(path) for path in settings.commit_log_dirs if os.path.isdir(path)}
    total, free = sum(one.total for one in usage.values()), sum(one.free for one in usage.values())
    ratios = {f"commitLogDiskRatio_{path}": str(disk_used_ratio(Path(path))) for path in usage}
    return {
        **ratios,
        "commitLogDiskRatio": str(min(map(float, ratios.values()), default=-1)),
        "consumeQueueDiskRatio": str(disk_used_ratio(Path(settings.root_dir))),
        "commitLogDirCapacity": f"Total : {readable_bytes(total)}, Free : {readable_bytes(free)}.",
    }


def _pools() -> dict[str, str]:
    table: dict[str, str] = {}
    for name, capacity in POOLS.items():
        table[f"{name}ThreadPoolQueueSize"] = "0"
        table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    table["EndTransactionQueueSize"] = "0"
    table["EndTransactionThreadPoolQueueCapacity"] = str(TRANSACTION_CAPACITY)
    return table


def _waiting(ctx: BrokerContext, timers: TimerNumbers) -> dict[str, str]:
    offsets = ctx.delay_offsets.rows
    ends = {level: ctx.store.max_offset(SCHEDULE_TOPIC, level - 1) for level in offsets}
    seconds = max((ctx.clock_ms() - ctx.started_ms) / 1000, 1.0)
    return {
        **schedule_rows(offsets, ends),
        "timerReadBehind": str(timers.read_behind_ms // 1000),
        "timerOffsetBehind": str(timers.offset_behind),
        "timerCongestNum": str(timers.pending),
        "timerEnqueueTps": f"{timers.enqueued / seconds:.2f}",
        "timerDequeueTps": f"{timers.dequeued / seconds:.2f}",
    }


def schedule_rows(offsets: Mapping[int, int], queue_max: Mapping[int, int]) -> dict[str, str]:
    """The lines about delay levels in use: delivered offset and queue end."""
    return {
        f"scheduleMessageOffset_{level}": f"{offset},{queue_max.get(level, 0)}"
        for level, offset in sorted(offsets.items())
    }


def _failed_tasks(ctx: BrokerContext, now_ms: int) -> dict[str, str]:
    """Twinlog's own: tasks that failed unexpectedly and run again; empty without such tasks."""
    return {
        f"twinlogFailedTask_{name}": (
            f"{health.failures} times, {'paused' if health.paused else 'running again'}, "
            f"last {max(now_ms - health.failed_ms, 0) // 1000} s ago: {health.error}"
        )
        for name, health in ctx.fence.failing().items()
    }


def running_time(elapsed_ms: int) -> str:
    seconds = max(elapsed_ms, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def readable_bytes(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(BYTE_UNITS))
    return f"{count / 1024**power:.1f} {BYTE_UNITS[power - 1]}"


def _boolean(value: bool) -> str:
    return "true" if value else "false"
