"""A real Prometheus reads our rules, scrapes the exporter in front of a pair, and answers every query."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.exporter.test_deploy import DEPLOY, expressions
from tests.interop.debian_programs import debian_program
from tests.interop.processes import Server, free_port
from tests.interop.replica_pair import Pair, until
from tests.interop.twinlog_servers import TWINLOG

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def test_promtool_accepts_the_rules_and_the_configuration():
    promtool = debian_program("prometheus", "promtool")
    for kind, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        done = subprocess.run(
            [promtool, "check", kind, DEPLOY / "prometheus" / name], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_a_pair_and_answers_every_expression(tmp_path: Path):
    prometheus = debian_program("prometheus", "prometheus")
    with (
        Pair.running(tmp_path / "pair", "twinlog", "twinlog", "ASYNC_MASTER") as pair,
        running_exporter(tmp_path / "exporter", pair.names.address) as exporter,
        running_prometheus(prometheus, tmp_path / "prometheus", exporter.port) as server,
    ):
        pair.joined()
        pair.send(20)
        lag = "rocketmq_ha_replica_lag_bytes"
        until(lambda: [row["value"][1] for row in ask(server, lag)] == ["0"], "Prometheus has the replica's lag")
        for place, expression in expressions().items():
            text = expression.replace("$cluster", ".*")
            assert isinstance(ask(server, text), list), place
        assert ask(server, "sum(rocketmq_producer_offset)")[0]["value"][1] != "0"
        assert len(ask(server, "twinlog_exporter_broker_up == 1")) == 2


def running_exporter(home: Path, names: str) -> Server:
    port = free_port()
    command = [*TWINLOG, "exporter", "-n", names, "--port", str(port), "--interval", "0.5"]
    return Server(command, home=home, port=port, ready="ready").wait_ready()


def running_prometheus(program: str, home: Path, target: int) -> Server:
    home.mkdir()
    job = {"job_name": "exporter", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    rules = str(DEPLOY / "prometheus" / "alerts.yml")
    conf = {"global": {"scrape_interval": "1s"}, "rule_files": [rules], "scrape_configs": [job]}
    (home / "prometheus.yml").write_text(yaml.safe_dump(conf))
    port = free_port()
    command = [
        program,
        f"--config.file={home}/prometheus.yml",
        f"--storage.tsdb.path={home}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    return Server(command, home=home, port=port, ready="ready to receive web requests").wait_ready(60)


def ask(server: Server, expression: str) -> list:
    """The rows of an instant query; an error of the language fails the test."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://{server.address}/api/v1/query?{query}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        pytest.fail(f"{expression}: {error.read().decode()}")
