"""Clusters and brokers: addresses, configuration, state."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinlog.base.clock import wall_clock_ms
from twinlog.cli.admin.command import broker_or_cluster, command, flag, masters, need, opt
from twinlog.cli.shared.explain import did_you_mean
from twinlog.cli.shared.option_values import boolean
from twinlog.cli.shared.report import Report, Table, joined, pairs, table, text_report, when
from twinlog.client import Admin, BadArgument, ClientError, NetError
from twinlog.client.admin.calls import named_brokers
from twinlog.settings.broker_conf import PARTS
from twinlog.settings.conf import keyed_fields
from twinlog.settings.known_keys import JAVA_KEYS
from twinlog.wire.codes import RequestCode


@command(
    "clusterList",
    "List all clusters and their brokers",
    flag("m", "moreStats", "messages in and out, yesterday and today"),
    opt("c", "clusterName", "only this cluster"),
    opt("i", "interval", "repeat every so many seconds", kind=float),
)
async def cluster_list(admin: Admin, args: Namespace) -> Report:
    info = await admin.cluster_info()
    found = list[_Broker]()
    for cluster, name in named_brokers(info, args.clusterName):
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items()):
            state, error = dict[str, str](), ""
            try:
                state = await admin.runtime_info(address)
            except (ClientError, NetError) as problem:
                error = str(problem)  # a registered broker that does not answer is shown without state
            found.append(_Broker(cluster, name, broker_id, address, state, error))
    if args.moreStats:
        columns = "Cluster Name,Broker Name,InTotalYest,OutTotalYest,InTotalToday,OutTotalToday"
        return table(columns, [(one.cluster, one.name, *_more(one.state)) for one in found])
    columns = "Cluster Name,Broker Name,BID,Addr,Version,InTPS(LOAD),OutTPS(LOAD),PCWait(ms),Hour,SPACE,ACTIVATED"
    report = table(columns, [_state(one) for one in found])
    report.screen = [_cluster_table(name, found) for name in sorted({one.cluster for one in found})]
    return report


@command("brokerStatus", "Fetch a broker's runtime state", *broker_or_cluster())
async def broker_status(admin: Admin, args: Namespace) -> Report:
    found = {address: await admin.runtime_info(address) for address in await masters(admin, args)}
    return _per_broker(found)


@command(
    "getBrokerConfig",
    "Get a broker's configuration",
    *broker_or_cluster(),
    opt("k", "keyPattern", "only keys that contain this text"),
)
async def get_broker_config(admin: Admin, args: Namespace) -> Report:
    found = {}
    for address in await masters(admin, args):
        config = await admin.broker_config(address)
        found[address] = {k: v for k, v in sorted(config.items()) if (args.keyPattern or "").lower() in k.lower()}
    return _per_broker(found)


@command(
    "updateBrokerConfig",
    "Update a broker's configuration",
    *broker_or_cluster(),
    need("k", "key", "configuration key"),
    need("v", "value", "its new value"),
    opt("a", "updateAllBroker", "with -c: replicas too", kind=boolean, default=False),
)
async def update_broker_config(admin: Admin, args: Namespace) -> Report:
    whole = args.updateAllBroker and args.clusterName
    addresses = await admin.addresses(args.clusterName) if whole else await masters(admin, args)
    for address in addresses:
        await _check_key(admin, address, args.key)
    lines = []
    for address in addresses:
        remark = await admin.update_broker_config(address, {args.key: args.value})
        if remark:
            done = f" ({', '.join(lines)})" if lines else ""
            raise BadArgument(f"{address} has not changed anything: {remark}{done}")
        lines.append(f"update broker config success, {address}: {args.key}={args.value}")
    return text_report(*lines)


async def _check_key(admin: Admin, address: str, key: str) -> None:
    """BadArgument for a key that the broker does not read. It lists its keys, except those that have no value."""
    config = await admin.broker_config(address)
    known = {one.name for part in PARTS for _, one, _ in keyed_fields(part)}
    is_twinlog = "twinlogVersion" in await admin.runtime_info(address)
    if key in config or (key in known if is_twinlog else key in JAVA_KEYS):
        return
    nearest = did_you_mean(key, {*config, *known} if is_twinlog else {*config, *JAVA_KEYS})
    unread = key in JAVA_KEYS and is_twinlog
    why = "RocketMQ has this key, and Twinlog does not read it" if unread else "there is no such key"
    raise BadArgument(f"nothing reads {key!r} on {address}: {why}{'' if unread else nearest}")


@command(
    "haStatus",
    "Fetch the state of replication",
    *broker_or_cluster(),
    opt("i", "interval", "repeat every so many seconds", kind=float),
)
async def ha_status(admin: Admin, args: Namespace) -> Report:
    reports, data = [], {}
    for address in await masters(admin, args):
        info = await admin.ha_status(address)
        data[address] = info
        if info.master:
            title = (
                f"master {address}: commit log ends at {info.master_commit_log_max_offset},"
                f" {len(info.ha_connection_info)} replicas, {info.in_sync_slave_nums} in sync"
            )
            rows = [
                (
                    *(c.addr, c.slave_ack_offset, c.diff, c.transferred_byte_in_second / 1024),
                    *("OK" if c.in_sync else "Fall Behind", c.transfer_from_where),
                )
                for c in info.ha_connection_info
            ]
            columns = "SlaveAddr,SlaveAckOffset,Diff,TransferSpeed(KB/s),Status,TransferFromWhere"
            reports.append(table(columns, rows, title=title))
        else:
            client = info.ha_client_runtime_info
            state = {
                "MasterAddr": client.master_addr,
                "CommitLogMaxOffset": client.max_offset,
                "TransferSpeed(KB/s)": client.transferred_byte_in_second / 1024,
                "LastReadTime": when(client.last_read_timestamp),
                "LastWriteTime": when(client.last_write_timestamp),
                "MasterFlushOffset": client.master_flush_offset,
            }
            reports.append(pairs(state, title=f"replica {address}"))
    return joined(reports, data)


def _clean(name: str, summary: str, code: RequestCode, what: str) -> None:
    @command(name, summary, *broker_or_cluster("brokerAddr", "cluster", required=False))
    async def clean(admin: Admin, args: Namespace) -> Report:
        if args.brokerAddr or args.cluster:
            addresses = await masters(admin, args)
        else:
            clusters = (await admin.cluster_info()).cluster_addr_table
            addresses = [address for cluster in sorted(clusters) for address in await admin.masters(cluster)]
        counts = {address: await admin.clean(address, code) for address in addresses}
        lines = [
            f"success {address}: " + ("done when it cleans up next" if count is None else f"{count} {what} deleted")
            for address, count in counts.items()
        ]
        return text_report(*lines, data=counts)


_clean("cleanExpiredCQ", "Clean expired consume queues", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "queue files")
_clean("cleanUnusedTopic", "Clean topics that are not used", RequestCode.CLEAN_UNUSED_TOPIC, "topics")
_clean(
    "deleteExpiredCommitLog",
    "Delete expired commit log files",
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    "files of the commit log",
)


@command("getColdDataFlowCtrInfo", "Get the state of cold data flow control", *broker_or_cluster())
async def get_cold_data(admin: Admin, args: Namespace) -> Report:
    return _per_broker({address: await admin.cold_data_info(address) for address in await masters(admin, args)})


@command(
    "updateColdDataFlowCtrGroupConfig",
    "Set a group's threshold for cold reads",
    *broker_or_cluster(),
    need("g", "consumerGroup", "consumer group"),
    need("v", "threshold", "bytes a second", kind=int),
)
async def set_cold_data(admin: Admin, args: Namespace) -> Report:
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.set_cold_data_threshold(address, args.consumerGroup, args.threshold)
    return text_report(*(f"updateColdDataFlowCtrGroupConfig success, {address}" for address in addresses))


@command(
    "removeColdDataFlowCtrGroupConfig",
    "Remove a group's threshold for cold reads",
    *broker_or_cluster(),
    need("g", "consumerGroup", "consumer group"),
)
async def remove_cold_data(admin: Admin, args: Namespace) -> Report:
    addresses = await masters(admin, args)
    for address in addresses:
        await admin.remove_cold_data_threshold(address, args.consumerGroup)
    return text_report(*(f"remove broker cold read threshold success, {address}" for address in addresses))


@command(
    "setCommitLogReadAheadMode",
    "Set how the commit log is read ahead",
    *broker_or_cluster(),
    need("m", "commitLogReadAheadMode", "0 normal, 1 random"),
)
async def set_read_ahead(admin: Admin, args: Namespace) -> Report:
    remarks = {a: await admin.set_read_ahead(a, args.commitLogReadAheadMode) for a in await masters(admin, args)}
    return text_report(*(f"{address}: {remark or 'success'}" for address, remark in remarks.items()), data=remarks)


@command(
    "resetMasterFlushOffset",
    "Set how far a replica's master has flushed",
    need("b", "brokerAddr", "the replica, host:port"),
    need("o", "offset", "byte in the commit log", kind=int),
)
async def reset_flush_offset(admin: Admin, args: Namespace) -> Report:
    await admin.reset_master_flush_offset(args.brokerAddr, args.offset)
    return text_report(f"reset master flush offset to {args.offset} success, {args.brokerAddr}")


@dataclass(frozen=True, slots=True)
class _Broker:
    """A registered broker, and the state that it reports; without state if it does not answer."""

    cluster: str
    name: str
    broker_id: int
    address: str
    state: dict[str, str]
    error: str

    def rate(self, name: str) -> float:
        words = self.state.get(name, "").split()
        return float(words[0]) if words else 0.0

    def load(self, pool: str) -> str:
        size, wait = f"{pool}ThreadPoolQueueSize", f"{pool}ThreadPoolQueueHeadWaitTimeMills"
        return f"{self.state.get(size, '')},{self.state.get(wait, '')}ms"

    @property
    def hours(self) -> float:
        """The age of the oldest message."""
        earliest = int(self.state.get("earliestMessageTimeStamp", "-1"))
        return (wall_clock_ms() - earliest) / 3_600_000 if earliest > 0 else 0.0


def _state(one: _Broker) -> tuple[Any, ...]:
    """mqadmin's columns."""
    version, own = one.state.get("brokerVersionDesc", "no answer"), one.state.get("twinlogVersion")
    return (
        one.cluster,
        one.name,
        one.broker_id,
        one.address,
        f"{version}/twinlog-{own}" if own else version,
        f"{one.rate('putTps'):.2f}({one.load('send')})",
        f"{one.rate('getTransferredTps'):.2f}({one.load('pull')})",
        one.state.get("pageCacheLockTimeMills", ""),
        f"{one.hours:.2f}",
        one.state.get("commitLogDiskRatio", ""),
        one.state.get("brokerActive", ""),
    )


def _cluster_table(cluster: str, found: list[_Broker]) -> Table:
    """One cluster on a terminal."""
    brokers = [one for one in found if one.cluster == cluster]
    rows = list[Sequence[Any]]()
    for one in brokers:
        own, state = one.state.get("twinlogVersion"), one.state
        disk = float(state.get("commitLogDiskRatio") or -1)
        rows.append(
            (
                one.name,
                one.broker_id,
                one.address,
                f"twinlog {own}" if own else state.get("brokerVersionDesc", "no answer"),
                one.rate("putTps") if state else None,
                one.rate("getTransferredTps") if state else None,
                f"{100 * disk:.0f} %" if disk >= 0 else "",
                f"{one.hours:.1f}" if state else "",
                state.get("brokerActive", ""),
                state.get("pageCacheLockTimeMills", ""),
                one.load("send") if state else "",
                one.load("pull") if state else "",
            )
        )
    names = {one.name for one in brokers}
    masters = sum(one.broker_id == 0 for one in brokers)
    title = f"{cluster}: {len(brokers)} brokers, {masters} of {len(names)} masters"
    notes = [f"{one.name} {one.broker_id}: {one.error}" for one in brokers if one.error]
    notes += [f"{name}: no master" for name in sorted(names - {one.name for one in brokers if one.broker_id == 0})]
    columns = "Broker,BID,Addr,Version,In/s,Out/s,Disk,Oldest(h),Active,PCWait(ms),Sends,Pulls".split(",")
    return Table(columns, rows, title, notes, "Pulls,Sends,PCWait(ms),Oldest(h),Active".split(","))


def _more(state: dict[str, str]) -> tuple[int, ...]:
    def total(direction: str, until: str) -> int:
        return int(state.get(f"msg{direction}Total{until}", "0"))

    yesterday = [total(d, "TodayMorning") - total(d, "YesterdayMorning") for d in ("Put", "Get")]
    today = [total(d, "TodayNow") - total(d, "TodayMorning") for d in ("Put", "Get")]
    return (*yesterday, *today)


def _per_broker(found: dict[str, dict[str, Any]]) -> Report:
    reports = [pairs(dict(sorted(values.items())), title=address) for address, values in found.items()]
    return joined(reports, next(iter(found.values())) if len(found) == 1 else found)
