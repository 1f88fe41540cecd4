"""Names of rocketmq-exporter for the state of a broker, read from its runtime table.

A key that a version does not have gives no series, where rocketmq-exporter gives none for the whole broker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from twinlog.exporter.facts import BrokerFacts
from twinlog.exporter.families import Labels, Metric, Row

RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

# The name behind rocketmq_brokeruntime_, and the key of the table.
PLAIN = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "remain_howmanydata_toflush": "remainHowManyDataToFlush",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
}
# Three numbers in one text: over 10, 60 and 600 s. 4.x writes one of the keys with a single r.
RATES = {
    "put": ("putTps",),
    "getfound": ("getFoundTps",),
    "gettotal": ("getTotalTps",),
    "gettransfered": ("getTransferredTps", "getTransferedTps"),
    "getmiss": ("getMissTps",),
}
WINDOWS_S = (10, 60, 600)
# `[<=0ms]:9 [0~10ms]:1 ...`
PUT_TIMES = {
    "<=0ms": "0ms",
    "0~10ms": "0to10ms",
    "10~50ms": "10to50ms",
    "50~100ms": "50to100ms",
    "100~200ms": "100to200ms",
    "200~500ms": "200to500ms",
    "500ms~1s": "500to1s",
    "1~2s": "1to2s",
    "2~3s": "2to3s",
    "3~4s": "3to4s",
    "4~5s": "4to5s",
    "5~10s": "5to10s",
    "10s~": "10stomore",
}
_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))}
_SIZE = re.compile(r"(-?[\d.]+)\s*([KMGTP]iB|B)")


def _metric(name: str, text: str) -> Metric:
    return Metric(f"rocketmq_brokeruntime_{name}", text, RUNTIME)


_PLAIN = {key: _metric(name, f"{key} of the broker's runtime table") for name, key in PLAIN.items()}
_RATES = {
    name: [_metric(f"{name}_tps{window}", f"{keys[0]} over {window} s") for window in WINDOWS_S]
    for name, keys in RATES.items()
}
_PUT_TIMES = {label: _metric(f"pmdt_{name}", f"Sends answered in {label}") for label, name in PUT_TIMES.items()}
_FREE = _metric("commitlogdir_capacity_free", "Free bytes on the commit log's disk")
_TOTAL = _metric("commitlogdir_capacity_total", "Bytes of the commit log's disk")


def runtime_rows(facts: BrokerFacts) -> Iterator[Row]:
    """The state of one master."""
    table = facts.runtime
    labels: Labels = (
        facts.place.cluster,
        facts.place.address,
        "",  # rocketmq-exporter leaves it empty as well
        table.get("brokerVersionDesc", ""),
        table.get("bootTimestamp", ""),
        table.get("brokerVersion", ""),
    )
    for key, metric in _PLAIN.items():
        if (value := number(table.get(key))) is not None:
            yield metric, labels, value
    for name, keys in RATES.items():
        text = next((table[key] for key in keys if key in table), "")
        for metric, word in zip(_RATES[name], text.split(), strict=False):
            if (value := number(word)) is not None:
                yield metric, labels, value
    for label, count in re.findall(r"\[([^\]]+)\]:(\d+)", table.get("putMessageDistributeTime", "")):
        if label in _PUT_TIMES:
            yield _PUT_TIMES[label], labels, float(count)
    total, free = disk_bytes(table)
    if total is not None and free is not None:
        yield _TOTAL, labels, total
        yield _FREE, labels, free


def disk_bytes(table: Mapping[str, str]) -> tuple[float | None, float | None]:
    """(total, free) of the commit log's disk, as exact as the table writes them: three digits."""
    sizes = _SIZE.findall(table.get("commitLogDirCapacity", ""))
    if len(sizes) != 2:
        return None, None
    total, free = (float(amount) * _UNITS[unit] for amount, unit in sizes)
    return total, free


def number(text: str | None) -> float | None:
    """A number of the table, also one with a unit of bytes; None for anything else."""
    if text is None:
        return None
    if found := _SIZE.fullmatch(text.strip()):
        return float(found[1]) * _UNITS[found[2]]
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
