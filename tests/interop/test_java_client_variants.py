"""The Java client with other settings of its transport: TLS, and binary headers."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.interop.clusters import Clusters, run_scenarios, server_names
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.toolchain import VERSIONS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]

VARIANTS = {"tls": "-Dtls.enable=true", "binary-headers": "-Drocketmq.serialize.type=ROCKETMQ"}
SCENARIOS = ["sync", "batch", "tags", "orderly", "pull", "transaction"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_flow_over_tls_and_with_binary_headers(clusters: Clusters, version: str, variant: str):
    cluster = clusters.get(server_names()[0])
    client = JavaRocketmq(version, jvm_options=(VARIANTS[variant],))
    lines = run_scenarios(cluster, client, SCENARIOS, prefix=f"{variant}_{version.replace('.', '')}")
    assert {name: line.get("error") for name, line in lines.items()} == dict.fromkeys(SCENARIOS)
    saw = {name: line["saw"] for name, line in lines.items()}
    assert len(saw["sync"]["read"]) == 8
    assert [message["body"] for message in saw["batch"]["read"]] == [f"batch-{number}" for number in range(10)]
    assert Counter(saw["tags"]["bodies"]) == {"red": 2, "green": 2, "绿色": 1, "🚀": 1}
    assert saw["orderly"]["orders"] == {order: [str(step) for step in range(10)] for order in "012"}
    assert saw["pull"]["held"] == ["late"]
    assert set(saw["transaction"]["bodies"]) == {"commit", "unknown, then commit"}
