"""The runtime table, in the form of a Java broker."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.broker.asking import body_of
from tests.broker.offline import Clock, ask
from tests.broker.stored import NOW, put, stored_context

from twinlog.broker.deferred.services import DeferredServices
from twinlog.broker.stats import runtime_info

PLAIN_NUMBERS = """commitLogMinOffset commitLogMaxOffset dispatchBehindBytes dispatchMaxBuffer pageCacheLockTimeMills
earliestMessageTimeStamp sendThreadPoolQueueSize pullThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity bootTimestamp
msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning
msgGetTotalTodayMorning msgGetTotalTodayNow putMessageTimesTotal putMessageSizeTotal timerOffsetBehind timerReadBehind
timerCongestNum startAcceptSendRequestTimeStamp remainTransientStoreBufferNumbs ackThreadPoolQueueCapacity""".split()


async def test_the_runtime_table_has_every_key_in_javas_form(tmp_path: Path):
    clock = Clock(NOW)
    with stored_context(tmp_path, clock) as ctx:
        services = DeferredServices(ctx)
        services.delays.load()
        put(ctx, DELAY="1")
        clock.now_ms += 61_000
        services.delays.deliver_due(clock())
        ctx.stats.puts("T").count += 10
        ctx.stats.tick(clock())
        table = runtime_info.runtime_table(ctx, services.timers)
        assert table["brokerActive"] == "true" and table["brokerVersionDesc"] == "V5_3_3"
        assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
        assert table["scheduleMessageOffset_1"] == "1,1"
        assert table["earliestMessageTimeStamp"] == str(NOW)
        for name in ("putTps", "getTransferredTps", "getFoundTps", "getMissTps"):
            assert table[name].endswith(" ") and len([float(word) for word in table[name].split()]) == 3
        for name in PLAIN_NUMBERS:
            int(table[name])
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:0 ")
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1
        assert table["commitLogDirCapacity"].startswith("Total : ")
        assert body_of(ask(runtime_info.handlers(ctx, services.timers), 28))["table"] == table


def test_delay_levels_in_use_show_delivered_and_end():
    assert runtime_info.schedule_rows({3: 7, 1: 2}, {1: 2, 3: 9}) == {
        "scheduleMessageOffset_1": "2,2",
        "scheduleMessageOffset_3": "7,9",
    }


def test_bytes_are_readable():
    assert [runtime_info.readable_bytes(n) for n in (0, 1023, 1024, 5 << 20, 252 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "252.0 GiB",
    ]


async def test_reserved_blocks_of_a_disk_are_neither_used_nor_free(tmp_path: Path, monkeypatch):
    usage = shutil._ntuple_diskusage(total=1000, used=100, free=300)
    with stored_context(tmp_path, Clock(NOW)) as ctx:
        put(ctx)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        table = runtime_info.runtime_table(ctx, DeferredServices(ctx).timers)
        assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "0.25"
