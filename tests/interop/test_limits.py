"""The real Java client at a broker whose limits are too low for it: it is slowed down, and nothing is lost."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster, run_scenarios
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.twinlog_servers import Twinlog

from twinlog.broker.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
SOON = {"messageDelayLevel": " ".join(["1s"] * 18)}  # a consumer that sends a message itself asks for level 3 or more


def test_a_consumer_whose_send_backs_are_refused_still_gets_its_messages_again(tmp_path: Path):
    client, ours = JavaRocketmq("5.5.0"), Twinlog()
    names, port = ours.name_server(tmp_path / "names"), free_port()
    conf = {"maxSendBackBytesPerSecond": "1", "metricsPort": str(port), **SOON}
    with names, ours.broker(tmp_path / "broker", names.address, **conf) as broker:
        lines = run_scenarios(Cluster(ours, names, broker), client, ["retry", "dead_letter"])
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert 'twinlog_broker_refused_total{limit="maxSendBackBytesPerSecond"}' in metrics
    assert {name: line.get("error") for name, line in lines.items()} == {"retry": None, "dead_letter": None}
    assert [message["reconsumeTimes"] for message in lines["retry"]["saw"]["seen"]] == [0, 1]
    assert [message["reconsumeTimes"] for message in lines["dead_letter"]["saw"]["seen"]] == [0, 1, 2]
    assert {message["body"] for message in lines["dead_letter"]["saw"]["dead"]} == {"unlucky"}
