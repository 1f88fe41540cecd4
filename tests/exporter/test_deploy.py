"""The dashboards and alert rules of deploy/: they parse, they are not stale, and every metric in them exists."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest
import yaml
from tests.broker.replication.test_replication_metrics import measured
from tests.exporter import promql
from tests.exporter.promql import metric_names
from tests.exporter.test_collect import exporting, until
from tests.replication.cluster import running_cluster, twins
from tools import make_grafana, make_metrics

from twinlog.client import Admin, ConsumerOptions, Outgoing, Producer, PushConsumer, RetryLater, StartFrom

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))


def expressions() -> dict[str, str]:
    """Every expression of dashboards and rules by where it stands."""
    found = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                found[f"{path.name}: {panel['title']} {target['refId']}"] = target["expr"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            found[f"alerts.yml: {rule['alert']}"] = rule["expr"]
    return found


def test_names_are_found_in_expressions():
    assert doctest.testmod(promql).failed == 0
    assert metric_names("count(x == 0) or vector(0)") == {"x"}
    assert metric_names('1 - rate(a_bucket{le="1"}[5m]) / b') == {"a_bucket", "b"}


def test_the_dashboards_are_those_of_the_program_that_writes_them():
    for path, text in make_grafana.files().items():
        assert path.read_text() == text, f"{path.name} is stale: run python -m tools.make_grafana"
    assert set(make_grafana.files()) == set(DASHBOARDS)


def test_panels_do_not_overlap_and_rules_say_what_to_do():
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
        assert len(set(places)) == len(places) > 3
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["action"] and rule["labels"]["severity"] in ("warning", "critical")


async def test_every_metric_of_dashboards_and_rules_is_served(tmp_path):
    async def listen(message):
        if message.body == b"bad":
            raise RetryLater(-1)

    first = ConsumerOptions(start_from=StartFrom.FIRST, commit_ms=100, hold_ms=500)
    async with (
        running_cluster(tmp_path) as cluster,
        measured(cluster, "master") as (master, metrics),
        measured(cluster, "replica", brokerRole="SLAVE", brokerId=1) as (replica, _),
        exporting(cluster.names) as service,
        Producer(cluster.names, group="shop") as producer,
    ):
        await twins(master, replica)
        async with Admin(cluster.names) as admin:
            await admin.create_topic("Orders", queues=1)
        for body in ("good", "bad"):
            await producer.send(Outgoing("Orders", body))
        consumer = PushConsumer(cluster.names, "billing", listen, consumer_options=first)
        consumer.subscribe("Orders")
        wanted = {name for text in expressions().values() for name in metric_names(text)}

        def missing() -> set[str]:
            lines = (metrics.exposition() + service.exposition()).decode().splitlines()
            return wanted - {line.partition("{")[0].partition(" ")[0] for line in lines}

        async with consumer:
            try:
                await until(lambda: not missing())
            except AssertionError:
                pytest.fail(f"no endpoint serves {sorted(missing())}")
    assert len(wanted) > 25


def test_the_page_of_metrics_is_that_of_the_program_that_writes_it():
    assert make_metrics.PATH.read_text() == make_metrics.document(), "run `python -m tools.make_metrics`"
    assert "rocketmq_ha_replica_lag_bytes" in make_metrics.document()
