"""A SYNC master with two replicas, one of which is killed: the other one's word counts, and the dead one comes back."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.interop.java_rocketmq import Broker
from tests.interop.replica_pair import SEGMENT, same_logs, until
from tests.interop.twinlog_servers import Twinlog

from twinlog.client import Outgoing, SendStatus
from twinlog.client.sync import Admin, Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def conf(role: str, broker_id: int, **more: str) -> dict[str, str]:
    keys = {"brokerRole": role, "brokerId": str(broker_id), "mappedFileSizeCommitLog": str(SEGMENT)}
    return {**keys, "inSyncReplicas": "2", "slaveTimeout": "10000", **more}


def test_of_two_replicas_one_is_killed_and_nothing_waits_for_it_or_is_lost(tmp_path: Path):
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(Twinlog().name_server(tmp_path / "names"))

        def start(name: str, keys: dict[str, str], port: int = 0) -> Broker:
            return stack.enter_context(Twinlog().broker(tmp_path / name, names.address, port=port, **keys))

        master = start("master", conf("SYNC_MASTER", 0))
        first, second = start("first", conf("SLAVE", 1)), start("second", conf("SLAVE", 2))
        producer = stack.enter_context(Producer(names.address, "PG"))
        admin = stack.enter_context(Admin(names.address))

        def replicas() -> list[int]:
            document = admin.replication_status(master.address)
            assert document is not None
            return sorted(view["brokerId"] for view in document["replicas"] if view["inSync"])

        def sent(mark: str) -> list[SendStatus]:
            return [producer.send(Outgoing("Two", f"{mark}{n}" + "x" * 2000)).status for n in range(200)]

        until(lambda: replicas() == [1, 2], "both have joined", 30)
        assert set(sent("both")) == {SendStatus.OK}
        first.kill()
        assert set(sent("one")) == {SendStatus.OK}, "the other replica acknowledges"
        until(lambda: replicas() == [2], "the dead one has left the status", 30)
        first = start("first", conf("SLAVE", 1), port=first.port)
        until(lambda: replicas() == [1, 2], "it is back", 30)
        assert set(sent("again")) == {SendStatus.OK}
        for replica in (first, second):
            until(lambda replica=replica: same_logs(master.store, replica.store), "the same bytes", 30)
