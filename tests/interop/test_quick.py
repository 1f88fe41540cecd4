"""The real Java client once, briefly: the part of these tests that `make test` runs too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster, run_scenarios
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.twinlog_servers import Twinlog

pytestmark = [pytest.mark.interop, pytest.mark.interop_quick, pytest.mark.timeout(600)]


def test_the_java_client_sends_pulls_and_is_pushed_what_it_subscribed_to(tmp_path: Path):
    client, ours = JavaRocketmq("5.5.0"), Twinlog()
    names = ours.name_server(tmp_path / "names")
    with names, ours.broker(tmp_path / "broker", names.address) as broker:
        lines = run_scenarios(Cluster(ours, names, broker), client, ["sync", "tags", "pull"])
        assert broker.stop() == 0
        assert names.stop() == 0
    assert {name: line.get("error") for name, line in lines.items()} == {"sync": None, "tags": None, "pull": None}
    assert len(lines["sync"]["saw"]["read"]) == 8
    assert Counter(lines["tags"]["saw"]["bodies"]) == {"red": 2, "green": 2, "绿色": 1, "🚀": 1}
    assert lines["pull"]["saw"]["held"] == ["late"]
