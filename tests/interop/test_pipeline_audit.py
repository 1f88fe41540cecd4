"""Audits and metadata differences where one side or both are Java's: stores, and live brokers."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from tests.interop.patient import WaitingAdmin
from tests.interop.replica_pair import Pair, log_end, records, segments, until
from tests.interop.test_replication import consume_some, metadata_becomes_equal

pytestmark = [
    pytest.mark.spark,
    pytest.mark.interop,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pip install 'twinlog[spark]'"),
]
BODY_AT = 88
PAIRS = (
    ("java-5.5.0", "java-5.5.0"),
    ("java-4.9.7", "java-4.9.7"),
    ("java-5.5.0", "twinlog"),
    ("java-4.9.7", "twinlog"),
    ("twinlog", "java-5.5.0"),
)


def compare(master: str, replica: str, **more):
    from tests.spark.jobs.audit.audit_stores import compare_sides

    from twinlog.spark.jobs.endpoint import parse_endpoint

    return compare_sides(parse_endpoint(master), parse_endpoint(replica), **more)


def differences(found):
    from twinlog.spark.jobs.audit.findings import DIFFERENCES

    return [one for one in found if one.kind in (*DIFFERENCES, "error")]


@pytest.mark.parametrize(("master", "replica"), PAIRS, ids=lambda name: name)
def test_a_pair_is_audited_equal_live_and_stopped_and_a_planted_difference_is_found(master, replica, tmp_path):
    with Pair.running(tmp_path, master, replica, "ASYNC_MASTER") as pair:
        pair.joined()
        pair.send(1100)
        consume_some(pair)
        pair.send_delayed(5)
        pair.logs_equal()
        # Java: a 5.x replica of a 5.x master learns of offsets once five hundred were committed.
        metadata = (master, replica) != ("java-5.5.0", "java-5.5.0")
        if metadata:
            metadata_becomes_equal(pair)
        assert log_end(pair.master.store) > 1 << 20

        # Live: broker against broker, broker against the other's store, store against store.
        addresses, stores = (pair.master.address, pair.replica.address), (pair.master.store, pair.replica.store)
        for one in (addresses[0], str(stores[0])):
            for other in (addresses[1], str(stores[1])):
                found = compare(one, other, metadata=metadata, settle_s=60.0)
                assert differences(found) == [], (one, other)
                assert {one.kind for one in found} <= {"note", "lag"}

        # A moving tail is lag at most.
        pair.send(20, mark="moving")
        found = compare(*map(str, stores), metadata=False)
        assert differences(found) == []
        until(lambda: log_end(stores[0]) == log_end(stores[1]), "the replica has the tail")
        pair.master.stop()
        pair.replica.stop()

    assert differences(compare(*map(str, stores), metadata=metadata, queues=True, check_crc=True)) == []
    if not metadata:
        told = differences(compare(*map(str, stores)))
        assert {one.kind for one in told} <= {"metadata"}
    copy = Path(shutil.copytree(stores[1], tmp_path / "copy"))
    victim = [one for one in records(stores[0]) if one.topic == "TwinTopic"][700]
    path = next(path for path in segments(copy) if 0 <= victim.physical_offset - int(path.name) < path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(victim.physical_offset - int(path.name) + BODY_AT + 5)
        file.write(b"\xff")
    (found,) = differences(compare(str(stores[0]), str(copy), metadata=metadata))
    assert (found.kind, found.side, found.physical_offset) == ("corrupt", "replica", victim.physical_offset)
    assert (found.item, found.queue_id, found.queue_offset) == (victim.topic, victim.queue_id, victim.queue_offset)
    assert found.key == victim.message_id


@pytest.mark.parametrize("version", ["java-5.5.0", "java-4.9.7"])
def test_metadata_of_a_live_java_broker_is_compared_with_ours(version, clusters):
    from twinlog.spark.jobs.endpoint import parse_endpoint
    from twinlog.spark.jobs.metadata_diff.job import DiffJob, metadata_diff

    java, ours = clusters.get(version), clusters.get("twinlog")
    for cluster, queues in ((java, 3), (ours, 5)):
        with WaitingAdmin(cluster.names.address) as admin:
            admin.create_topic("DiffTopic", queues=queues)
    sides = parse_endpoint(java.broker.address), parse_endpoint(ours.broker.address)
    summary = metadata_diff(None, DiffJob(left=sides[0], right=sides[1], kinds=("topics",)))
    rows = {(row.field, row.left, row.right) for row in summary.rows if row.key == "DiffTopic"}
    assert rows == {("readQueueNums", "3", "5"), ("writeQueueNums", "3", "5")}
    assert metadata_diff(None, DiffJob(left=sides[0], right=sides[0])).rows == ()
