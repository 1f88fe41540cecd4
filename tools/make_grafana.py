"""Writes the Grafana dashboards of deploy/grafana: `python -m tools.make_grafana`.

Panels are rows of this file: a title, a unit, and expressions with a legend. A test fails when the files are stale, and
another asks a running endpoint for every metric that is named here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
CLUSTER = 'cluster=~"$cluster"'


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]  # expression, legend
    kind: str = "timeseries"
    about: str = ""


def panel(title: str, unit: str, *queries: tuple[str, str], kind: str = "timeseries", about: str = "") -> Panel:
    return Panel(
        title, unit, tuple((text.replace("CLUSTER", CLUSTER), legend) for text, legend in queries), kind, about
    )


CLUSTER_PANELS = (
    panel("Brokers that answer", "none", ("sum(twinlog_exporter_broker_up{CLUSTER})", "up"), kind="stat"),
    panel(
        "Brokers that do not",
        "none",
        ("count(twinlog_exporter_broker_up{CLUSTER} == 0) or vector(0)", "down"),
        kind="stat",
    ),
    panel("Oldest snapshot", "s", ("max(twinlog_exporter_snapshot_age_seconds{CLUSTER})", "age"), kind="stat"),
    panel("Messages in", "msg/s", ("sum by (broker) (rocketmq_broker_tps{CLUSTER})", "{{broker}}")),
    panel("Messages out", "msg/s", ("sum by (broker) (rocketmq_broker_qps{CLUSTER})", "{{broker}}")),
    panel("Disk used", "percentunit", ("rocketmq_brokeruntime_commitlog_disk_ratio{CLUSTER}", "{{brokerIP}}")),
    panel("Topics by messages in", "msg/s", ("topk(10, sum by (topic) (rocketmq_producer_tps{CLUSTER}))", "{{topic}}")),
    panel(
        "Topics by bytes in", "Bps", ("topk(10, sum by (topic) (rocketmq_producer_message_size{CLUSTER}))", "{{topic}}")
    ),
    panel(
        "Groups by messages out",
        "msg/s",
        ("topk(10, sum by (group) (rocketmq_consumer_tps{CLUSTER}))", "{{group}}"),
    ),
    panel(
        "Backlog",
        "short",
        (
            "topk(10, sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{CLUSTER}))",
            "{{consumer_group}} {{topic}}",
        ),
        about="Messages that a group has not consumed yet",
    ),
    panel(
        "Age of the backlog",
        "ms",
        (
            "topk(10, max by (consumer_group, topic) (rocketmq_consumer_lag_latency_milliseconds{CLUSTER}))",
            "{{consumer_group}} {{topic}}",
        ),
        about="How long the oldest message that was not consumed waits",
    ),
    panel(
        "Dead letters in an hour",
        "short",
        ("sum by (consumer_group) (increase(rocketmq_send_to_dlq_messages_total{CLUSTER}[1h]))", "{{consumer_group}}"),
    ),
    panel(
        "Consumers",
        "none",
        ("sum by (consumer_group) (rocketmq_consumer_connections{CLUSTER})", "{{consumer_group}}"),
    ),
    panel(
        "Producers", "none", ("sum by (broker, group) (rocketmq_producer_count{CLUSTER})", "{{group}} at {{broker}}")
    ),
    panel(
        "Time of a listener call",
        "ms",
        ("max by (group, topic) (rocketmq_client_consume_rt)", "{{group}} {{topic}}"),
    ),
)
REPLICATION_PANELS = (
    panel("Lag", "bytes", ("rocketmq_ha_replica_lag_bytes{CLUSTER}", "{{node_id}} replica {{replica}}")),
    panel("Lag", "short", ("rocketmq_ha_replica_lag_messages{CLUSTER}", "{{node_id}} replica {{replica}}")),
    panel("Lag", "s", ("rocketmq_ha_replica_lag_seconds{CLUSTER}", "{{node_id}} replica {{replica}}")),
    panel("In sync", "none", ("rocketmq_ha_replica_in_sync{CLUSTER}", "{{node_id}} replica {{replica}}")),
    panel(
        "Transfer", "Bps", ("rocketmq_ha_replica_transfer_bytes_per_second{CLUSTER}", "{{node_id}} replica {{replica}}")
    ),
    panel("Replicas", "none", ("rocketmq_ha_replicas", "{{node_id}}")),
    panel("Log of each master", "bytes", ("rocketmq_brokeruntime_commitlog_maxoffset{CLUSTER}", "{{brokerIP}}")),
    panel("Not on disk yet", "bytes", ("rocketmq_storage_flush_behind_bytes{CLUSTER}", "{{node_id}}")),
    panel("Not in queues yet", "bytes", ("rocketmq_storage_dispatch_behind_bytes{CLUSTER}", "{{node_id}}")),
)
BROKER_PANELS = (
    panel("Messages in", "msg/s", ("sum by (node_id) (rate(rocketmq_messages_in_total{CLUSTER}[5m]))", "{{node_id}}")),
    panel(
        "Messages out", "msg/s", ("sum by (node_id) (rate(rocketmq_messages_out_total{CLUSTER}[5m]))", "{{node_id}}")
    ),
    panel(
        "Bytes",
        "Bps",
        ("sum by (node_id) (rate(rocketmq_throughput_in_total{CLUSTER}[5m]))", "{{node_id}} in"),
        ("sum by (node_id) (rate(rocketmq_throughput_out_total{CLUSTER}[5m]))", "{{node_id}} out"),
    ),
    panel(
        "99 % of sends are answered within",
        "ms",
        (
            "histogram_quantile(0.99, sum by (node_id, le) "
            '(rate(rocketmq_rpc_latency_milliseconds_bucket{CLUSTER, request_code=~"send_.*"}[5m])))',
            "{{node_id}}",
        ),
    ),
    panel(
        "Requests",
        "reqps",
        (
            "sum by (request_code) (rate(rocketmq_rpc_latency_milliseconds_count{CLUSTER}[5m]))",
            "{{request_code}}",
        ),
    ),
    panel(
        "Refused requests",
        "reqps",
        (
            "sum by (request_code, response_code) "
            '(rate(rocketmq_rpc_latency_milliseconds_count{CLUSTER, response_code!="success"}[5m]))',
            "{{request_code}}: {{response_code}}",
        ),
    ),
    panel(
        "Messages larger than 4 KiB",
        "percentunit",
        (
            '1 - sum by (node_id) (rate(rocketmq_message_size_bucket{CLUSTER, le="4096.0"}[5m])) '
            "/ sum by (node_id) (rate(rocketmq_message_size_count{CLUSTER}[5m]))",
            "{{node_id}}",
        ),
    ),
    panel(
        "Age of the backlog",
        "ms",
        (
            "topk(10, max by (consumer_group, topic) (rocketmq_consumer_queueing_latency_milliseconds{CLUSTER}))",
            "{{consumer_group}} {{topic}}",
        ),
        about="How long the oldest message waits that the group has not pulled",
    ),
    panel(
        "In flight",
        "short",
        (
            "topk(10, sum by (consumer_group, topic) (rocketmq_consumer_inflight_messages{CLUSTER}))",
            "{{consumer_group}} {{topic}}",
        ),
        about="Messages that a group has pulled and not consumed yet",
    ),
)
DASHBOARDS = {
    "twinlog-cluster": ("RocketMQ cluster", CLUSTER_PANELS, "From `twinlog exporter`; Java's brokers too."),
    "twinlog-replication": ("RocketMQ replication", REPLICATION_PANELS, "From `twinlog exporter`; Java's brokers too."),
    "twinlog-broker": ("RocketMQ broker", BROKER_PANELS, "From the brokers' own endpoints, Twinlog's and Java's 5.x."),
}


def dashboard(uid: str, title: str, panels: tuple[Panel, ...], about: str) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["rocketmq", "twinlog"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": [_panel(number, one) for number, one in enumerate(panels)],
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "cluster",
            "type": "query",
            "label": "Cluster",
            "datasource": SOURCE,
            "query": "label_values(rocketmq_topic_number, cluster)",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _panel(number: int, one: Panel) -> dict[str, Any]:
    place = {"x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT}
    return {
        "id": number + 1,
        "type": one.kind,
        "title": one.title,
        "description": one.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": text, "legendFormat": legend, "datasource": SOURCE}
            for at, (text, legend) in enumerate(one.queries)
        ],
    }


def files() -> dict[Path, str]:
    return {
        TARGET / f"{uid}.json": json.dumps(dashboard(uid, *rest), indent=2) + "\n" for uid, rest in DASHBOARDS.items()
    }


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    main()
