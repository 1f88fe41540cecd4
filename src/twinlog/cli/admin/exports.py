"""A cluster's metadata, configuration and metrics, as JSON files."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from twinlog.base.atomic_file import replace_file
from twinlog.base.clock import wall_clock_ms
from twinlog.base.safe_files import UnsafeFile, make_directory
from twinlog.base.system_names import HALF_TOPIC, SCHEDULE_TOPIC, is_retry_or_dlq
from twinlog.base.trusted_path import why_untrusted
from twinlog.cli.admin.command import broker_or_cluster, command, flag, masters, need, opt
from twinlog.cli.shared.report import Report, plain, text_report
from twinlog.client import Admin, ClientError
from twinlog.wire.codes import version_name

CLUSTER = need("c", "clusterName", "cluster")
DEFAULT_FOLDER = Path("/tmp/rocketmq/export")  # mqadmin's
FOLDER = opt("f", "filePath", "folder to write to", kind=Path, default=DEFAULT_FOLDER)
CONFIG_KEYS = (
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums"),
    *("flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn"),
    *("traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
)


@command(
    "exportMetadata",
    "Export topics and groups",
    *broker_or_cluster(),
    FOLDER,
    flag("t", "topic", "only topics"),
    flag("g", "subscriptionGroup", "only groups"),
    flag("s", "specialTopic", "retry and dead-letter topics too"),
)
async def metadata(admin: Admin, args: Namespace) -> Report:
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in await masters(admin, args):
        system = set(await admin.system_topics(address))
        for name, config in (await admin.topic_configs(address)).topic_config_table.items():
            special = is_retry_or_dlq(name)
            if name not in system and (args.specialTopic or not special):
                _merge(topics, name, plain(config), ("readQueueNums", "writeQueueNums"))
        for name, config in (await admin.groups(address)).subscription_group_table.items():
            _merge(groups, name, plain(config), ("retryQueueNums",))
    data: dict[str, Any] = {"exportTime": wall_clock_ms()}
    if not args.subscriptionGroup or args.topic:
        data["topicConfigTable"] = topics
    if not args.topic or args.subscriptionGroup:
        data["subscriptionGroupTable"] = groups
    return _written(args.filePath / "metadata.json", data)


@command("exportConfigs", "Export the configuration of a cluster", CLUSTER, FOLDER)
async def configs(admin: Admin, args: Namespace) -> Report:
    info = await admin.cluster_info()
    names = sorted(info.cluster_addr_table.get(args.clusterName, []))
    addresses = await admin.masters(args.clusterName)
    found = {}
    for address in addresses:
        config = await admin.broker_config(address)
        found[config.get("brokerName", address)] = {key: config[key] for key in CONFIG_KEYS if key in config}
    replicas = sum(len([i for i in info.broker_addr_table[name].broker_addrs if i]) for name in names)
    scale = {
        "namesrvSize": len(admin.session.name_servers),
        "masterBrokerSize": len(addresses),
        "slaveBrokerSize": replicas,
    }
    return _written(args.filePath / "configs.json", {"brokerConfigs": found, "clusterScale": scale})


@command("exportMetrics", "Export the metrics of a cluster's brokers", CLUSTER, FOLDER)
async def metrics(admin: Admin, args: Namespace) -> Report:
    reports: dict[str, Any] = {}
    totals: dict[str, float] = {}
    for address in await admin.masters(args.clusterName):
        state, config = await admin.runtime_info(address), await admin.broker_config(address)
        traffic = await _traffic(admin, address, args.clusterName)
        for name, value in traffic.items():
            totals[name] = totals.get(name, 0) + value
        reports[config.get("brokerName", address)] = {
            "runtimeEnv": {"cpuNum": config.get("clientCallbackExecutorThreads")},
            "runtimeQuota": {
                "diskRatio": {name: state.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
                "groupSize": len((await admin.groups(address)).subscription_group_table),
                "messageAverageSize": state.get("putMessageAverageSize"),
                "topicSize": len((await admin.topic_configs(address)).topic_config_table),
                "traffic": traffic,
            },
            "runtimeVersion": {
                "clientInfo": await _clients(admin, address),
                "rocketmqVersion": state.get("brokerVersionDesc"),
            },
        }
    return _written(args.filePath / "metrics.json", {"evaluateReport": reports, "totalData": totals})


async def _traffic(admin: Admin, address: str, cluster: str) -> dict[str, float]:
    """Messages a second, and in the last day: normal, transactional and delayed."""
    names = {
        "normalIn": ("BROKER_PUT_NUMS", cluster),
        "normalOut": ("BROKER_GET_NUMS", cluster),
        "transIn": ("TOPIC_PUT_NUMS", HALF_TOPIC),
        "scheduleIn": ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC),
    }
    found: dict[str, float] = {}
    for label, (name, key) in names.items():
        try:
            stats = await admin.stats(address, name, key)
        except ClientError:
            stats = {}  # nothing was counted yet
        found[f"{label}Tps"] = stats.get("statsMinute", {}).get("tps") or 0.0
        found[f"{label}OneDayNum"] = max(
            (stats.get(f"stats{span}", {}).get("sum") or 0 for span in ("Minute", "Hour", "Day")), default=0
        )
    return found


async def _clients(admin: Admin, address: str) -> list[str]:
    found = set()
    for group in (await admin.groups(address)).subscription_group_table:
        try:
            members = (await admin.consumer_connection(group, address)).connection_set
        except ClientError:
            continue  # offline
        found |= {f"{member.language}%{version_name(member.version)}" for member in members}
    return sorted(found)


def _merge(table: dict[str, Any], name: str, config: dict[str, Any], summed: tuple[str, ...]) -> None:
    """Add one broker's entry; the counts of several brokers add up."""
    if name in table:
        for key in summed:
            table[name][key] += config[key]
    else:
        table[name] = config


def _written(file: Path, data: dict[str, Any]) -> Report:
    make_directory(file.parent)
    if file.parent == DEFAULT_FOLDER and (problem := why_untrusted(file.parent)):  # other users may have made it
        raise UnsafeFile(f"{file} is not written, as {problem}: give a folder of your own with -f")
    replace_file(file, [json.dumps(data, indent=2, ensure_ascii=False).encode()])
    return text_report(f"export {file} success", data={"file": str(file), **data})
