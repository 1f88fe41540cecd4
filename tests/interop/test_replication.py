"""Java master with Twinlog replica, Twinlog master with Java replica, in ASYNC and SYNC."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.patient import WaitingPullConsumer
from tests.interop.replica_pair import (
    FILES_OF_49,
    Pair,
    is_java,
    log_end,
    pull_everything,
    same_config,
    typed_config,
    until,
)

from twinlog.client import SendStatus

pytestmark = [pytest.mark.interop, pytest.mark.timeout(660)]

PEERS = (
    ("java-4.9.7", "twinlog"),
    ("java-5.5.0", "twinlog"),
    ("twinlog", "java-4.9.7"),
    ("twinlog", "java-5.5.0"),
    ("twinlog", "twinlog"),
)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize(("master", "replica"), PEERS, ids=lambda name: name)
def test_a_replica_is_its_masters_twin_through_the_masters_death_and_return(master, replica, role, tmp_path):
    with Pair.running(tmp_path, master, replica, role) as pair:
        pair.joined()
        acknowledged = [result for result in pair.send(1500) if result.status is SendStatus.OK]
        if role == "SYNC_MASTER":
            assert len(acknowledged) == 1500
        pair.logs_equal()
        assert log_end(pair.master.store) > 1 << 20, "the log spans several segments"
        consume_some(pair)
        pair.send_delayed(5)
        metadata_becomes_equal(pair)

        pair.master.kill()
        if role == "SYNC_MASTER":
            assert_all_there(pair, acknowledged, pair.replica.address)

        pair.restart_master()
        more = pair.send(50, mark="after")
        pair.logs_equal()
        assert_all_there(pair, [*acknowledged, *more], pair.master.address)
        assert_all_there(pair, [*acknowledged, *more], pair.replica.address)


def consume_some(pair: Pair) -> None:
    """Leave a consumer group with offsets on the master."""
    with WaitingPullConsumer(pair.names.address, "CG_TWIN") as consumer:
        for queue in consumer.queues("TwinTopic"):
            pulled = consumer.pull(queue, 0)
            consumer.commit(queue, pulled.next_offset)


def metadata_becomes_equal(pair: Pair) -> None:
    """Every file of the config directory that both versions keep says the same, and what was done before."""
    until(lambda: tells_of_some(pair.master.store), "the master has written down offsets and delayed messages")
    java_49 = "4.9.7" in (getattr(pair.master_maker, "version", ""), getattr(pair.replica_maker, "version", ""))
    # Java 5.x replicas bump the versions they adopt, and 4.9 keeps none for offsets.
    versions = not is_java(pair.replica_maker)
    for name in FILES_OF_49:
        keeps_version = versions and not (java_49 and name in ("consumerOffset.json", "delayOffset.json"))
        until(
            lambda name=name, keeps=keeps_version: same_config(
                pair.master.store, pair.replica.store, name, versions=keeps
            ),
            f"{name} is equal: {typed_config(pair.master.store, name)} {typed_config(pair.replica.store, name)}"[:3000],
        )


def tells_of_some(store: Path) -> bool:
    """Whether the files know what `consume_some` and five delayed messages left. Java writes them every few seconds."""
    offsets, delays = typed_config(store, "consumerOffset.json"), typed_config(store, "delayOffset.json")
    if offsets is None or delays is None:
        return False
    return "TwinTopic@CG_TWIN" in offsets.offset_table and delays.offset_table.get(1) == 5


def assert_all_there(pair: Pair, acknowledged: list, address: str) -> None:
    """Wait for them: the queues that consumers read follow the log a moment later."""
    queues, wanted = max(result.queue.queue_id for result in acknowledged), {one.message_id for one in acknowledged}

    def found() -> set[str]:
        return {message.message_id for message in pull_everything(address, "TwinTopic", queues + 1)}

    until(lambda: wanted <= found(), f"all {len(wanted)} acknowledged messages are at {address}", 60)
