"""Make docs/metrics.md from the exporter's metrics: `python -m tools.make_metrics`. A test fails when it is stale."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from twinlog.exporter import collect_service, exporter_names, native_names, replica_names, runtime_names
from twinlog.exporter.families import Metric

PATH = Path(__file__).parents[1] / "docs" / "metrics.md"
_HEAD = """\
# Metrics

<!-- Made by `python -m tools.make_metrics`. -->

A broker with `metricsPort` serves its own numbers under `/metrics`, with the names and labels of a Java broker 5.5.0
with `metricsExporterType=PROM`. `twinlog exporter` asks the brokers of any cluster, Java's too, and serves what can be
seen from outside:

```console
$ twinlog exporter -n 127.0.0.1:9876
twinlog exporter ready on http://127.0.0.1:5557/metrics
```

Brokers are asked every 15 s (`--interval`), each by a task of its own, with at most four requests at a time
(`--concurrency`). A scrape gets the last snapshot; `twinlog_exporter_snapshot_age_seconds` is its age. A broker that
does not answer loses its series. With many topics, `--topics 'Orders*' --topics '!*-test'` chooses some; a round has
one request for each topic and each group. It listens on this machine only, unless `--listen` names another address.

`deploy/prometheus/alerts.yml` has rules and `deploy/grafana/` has dashboards for these names.
"""
_PARTS: tuple[tuple[str, str, tuple[ModuleType, ...]], ...] = (
    ("Names of RocketMQ 5", "Those of its brokers' own endpoint.", (native_names,)),
    ("Names of rocketmq-exporter", "For dashboards that were made for it.", (exporter_names, runtime_names)),
    ("Replication", "Also on a Twinlog broker's own endpoint.", (replica_names,)),
    ("The exporter itself", "", (collect_service,)),
)
_ONLY_BROKERS = """\
## Only on a broker's own endpoint

`rocketmq_throughput_in_total` and `rocketmq_throughput_out_total` (bytes), the histograms `rocketmq_message_size` and
`rocketmq_rpc_latency_milliseconds`, `rocketmq_consumer_queueing_latency_milliseconds`, and the counts of timers and
transactions. Of Java's names a Twinlog broker lacks those of pop consumption, of thread pools and of the slots of
Java's timer; `tests/interop/test_metrics.py` has the list, with reasons. `message_type` is the type that the topic
declares. Numbers that RocketMQ does not have begin with `twinlog_`, `rocketmq_ha_` and `rocketmq_slave_sync_`.
"""


def metrics_of(module: ModuleType) -> list[Metric]:
    """All metrics that a module names, alone or in tables."""
    found: dict[str, Metric] = {}

    def take(value: object) -> None:
        if isinstance(value, Metric):
            found[value.name] = value
        elif isinstance(value, dict):
            for one in value.values():
                take(one)
        elif isinstance(value, list):
            for one in value:
                take(one)

    for value in vars(module).values():
        take(value)
    return sorted(found.values(), key=lambda one: one.name)


def document() -> str:
    parts, seen = [_HEAD], set[str]()
    for title, note, modules in _PARTS:
        rows = [one for module in modules for one in metrics_of(module) if one.name not in seen]
        seen |= {one.name for one in rows}
        lines = [f"| `{_name(one)}` | {one.text} | {', '.join(one.labels)} |" for one in rows]
        head = f"## {title}\n\n" + (f"{note}\n\n" if note else "")
        parts.append(head + "| name | meaning | labels |\n|---|---|---|\n" + "\n".join(lines) + "\n")
    return "\n".join([*parts, _ONLY_BROKERS])


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.kind == "counter" else metric.name


if __name__ == "__main__":
    PATH.write_text(document())
    print(PATH)
