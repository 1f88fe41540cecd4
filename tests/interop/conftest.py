"""Fixtures for tests with real RocketMQ software."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.clusters import Cluster, Clusters, run_scenarios, server_names
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.toolchain import VERSIONS

collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_spark_*.py"]


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    clusters = Clusters(tmp_path_factory.mktemp("clusters"))
    yield clusters
    clusters.close()


@pytest.fixture(scope="session", params=server_names())
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    """A running name server and broker, one after the other of each implementation under test."""
    return clusters.get(request.param)


@pytest.fixture(scope="session", params=VERSIONS, ids=lambda version: f"client-{version}")
def client(request: pytest.FixtureRequest) -> JavaRocketmq:
    """The real Java client, one after the other of each version."""
    return JavaRocketmq(request.param)


@pytest.fixture(scope="session")
def scenario_results() -> dict[tuple[str, str], dict[str, Any]]:
    return {}


@pytest.fixture
def saw(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    client: JavaRocketmq,
    scenario_results: dict[tuple[str, str], dict[str, Any]],
) -> dict[str, Any]:
    """What the scenario named by the test's parameter saw; the first to ask runs all that were selected."""
    pair = (cluster.implementation.name, client.version)
    if pair not in scenario_results:
        scenario_results[pair] = {}  # whatever goes wrong below goes wrong once, not once per test
        scenario_results[pair] = run_scenarios(cluster, client, _selected(request, pair))
    line = scenario_results[pair].get(request.param)
    if line is None or "error" in line:
        pytest.fail(f"scenario {request.param}: {line['error'] if line else 'no answer'}", pytrace=False)
    return line["saw"]


def _selected(request: pytest.FixtureRequest, pair: tuple[str, str]) -> list[str]:
    """The scenarios of all collected tests for one server and one client."""
    chosen = set()
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "saw" in parameters and (parameters["cluster"], parameters["client"]) == pair:
            chosen.add(parameters["saw"])
    return sorted(chosen)
