"""Offsets of new groups at a real Java broker, whose table loses first commits that arrive together."""

from __future__ import annotations

import time
import uuid

import pytest
from tests.interop.clusters import Cluster, Clusters
from tests.interop.patient import WaitingAdmin, WaitingProducer

from twinlog.spark import cluster as spark_cluster
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.restore.groups import make_groups
from twinlog.wire.bodies import MessageQueue

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(300)]
QUEUES, GROUPS = 16, 300


def test_a_java_broker_keeps_every_first_offset_of_many_new_groups(clusters: Clusters):
    place: Cluster = clusters.get("java-5.5.0", use="python-client")
    names, topic = place.names.address, f"Placed_{uuid.uuid4().hex[:8]}"
    offsets = {MessageQueue(topic, "broker-a", number): 100 + number for number in range(QUEUES)}
    masters = spark_cluster.Cluster(ClusterOptions(name_servers=(names,)))
    groups = [f"{topic}_{number}" for number in range(GROUPS)]
    with WaitingAdmin(names) as admin, WaitingProducer(names, "asks") as producer:
        limit = time.monotonic() + 150
        while not admin.cluster_info().cluster_addr_table:
            assert time.monotonic() < limit, "the broker does not register"
            time.sleep(0.1)
        admin.create_topic(topic, queues=QUEUES)
        while len(producer.queues(topic)) < QUEUES:
            assert time.monotonic() < limit, "the topic does not appear"
            time.sleep(0.1)
        make_groups(admin, masters, groups, offsets)
        made = admin.groups(place.broker.address).subscription_group_table
        assert set(groups) <= set(made)
    for group in groups:
        masters.commit(group, offsets)  # it reads them back, and raises on a difference
        assert masters.committed(group, offsets) == offsets
