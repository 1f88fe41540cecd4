"""Brokers and name servers of different make: real brokers register with ours, ours with a real one."""

from __future__ import annotations

import pytest
from tests.interop.clusters import Cluster, implementation, run_scenarios
from tests.interop.java_rocketmq import JavaRocketmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]


@pytest.mark.parametrize(
    ("names_of", "broker_of"),
    [("twinlog", "java-5.5.0"), ("twinlog", "java-4.9.7"), ("java-5.5.0", "twinlog"), ("java-4.9.7", "twinlog")],
    ids=lambda name: name,
)
def test_messages_flow_when_name_server_and_broker_are_of_different_make(names_of: str, broker_of: str, tmp_path):
    maker = implementation(broker_of)
    names = implementation(names_of).name_server(tmp_path / "names")
    with names, maker.broker(tmp_path / "broker", names.address) as broker:
        client = JavaRocketmq("5.5.0" if "5.5.0" in names_of + broker_of else "4.9.7")
        lines = run_scenarios(Cluster(maker, names, broker), client, ["sync", "tags", "auto_topic"])
    assert {name: line.get("error") for name, line in lines.items()} == {"sync": None, "tags": None, "auto_topic": None}
    assert sorted(lines["tags"]["saw"]["bodies"]) == ["green", "green", "red", "red", "绿色", "🚀"]
    assert lines["auto_topic"]["saw"]["queues"] == 3
