"""Prometheus sees how far replicas are behind, and how their metadata fares."""

import asyncio
import contextlib

from tests.broker.running import broker_conf
from tests.replication.cluster import QUICK, end_of, running_cluster, send_all, twins, until

from twinlog.broker.broker import Broker
from twinlog.telemetry.metrics import Metrics

NODE = ("DefaultCluster", "broker", "broker-a")


@contextlib.asynccontextmanager
async def measured(cluster, name, **settings):
    """A broker with metrics of its own."""
    metrics, ready = Metrics(), asyncio.Event()
    conf = broker_conf(cluster.home / name, namesrvAddr=cluster.names, **{**QUICK, **settings})
    broker = Broker(conf, metrics=metrics, on_ready=lambda _: ready.set())
    task = asyncio.create_task(broker.run())
    await ready.wait()
    try:
        yield broker, metrics
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_master_shows_each_replicas_lag_and_a_replica_its_synchronisation(tmp_path):
    async with (
        running_cluster(tmp_path) as cluster,
        measured(cluster, "master") as (master, of_master),
        measured(cluster, "replica", brokerRole="SLAVE", brokerId=7) as (replica, of_replica),
    ):
        await twins(master, replica)
        lags = {(*NODE, "7"): 0}
        await until(lambda: of_master.samples()["rocketmq_ha_replica_lag_bytes"] == lags, "the replica is known")
        link = replica.replication.replica._receiver
        link._loop.remove_reader(link._socket.fileno())  # the replica stops listening
        await send_all(master, [b"one", b"two", b"three"])
        seen = of_master.samples()
        assert seen["rocketmq_ha_replica_lag_bytes"] == {(*NODE, "7"): end_of(master)}
        assert seen["rocketmq_ha_replica_lag_messages"] == {(*NODE, "7"): 3}
        assert seen["rocketmq_ha_replica_lag_seconds"][(*NODE, "7")] >= 0
        assert seen["rocketmq_ha_replica_in_sync"] == {(*NODE, "7"): 1.0} and seen["rocketmq_ha_in_sync_replicas"] == 1

        await until(lambda: of_replica.samples()["rocketmq_slave_sync_rounds"] > 1, "metadata is synchronised")
        seen = of_replica.samples()
        kinds = {kind for (kind,) in seen["rocketmq_slave_sync_last_success_seconds"]}
        assert {"topics", "offsets", "delayOffsets", "groups", "requestModes"} <= kinds
        assert seen["rocketmq_slave_sync_failures"][("topics",)] == 0
        assert seen["rocketmq_slave_sync_changes"][("topics",)] >= 1
        assert seen["rocketmq_slave_sync_bytes"][("topics",)] > 0
        assert seen["rocketmq_ha_following"] == 1.0 and seen["rocketmq_ha_reconnects"] >= 1
        labels = b'cluster="DefaultCluster",node_id="broker-a",node_type="broker",replica="7"'
        assert b"rocketmq_ha_replica_lag_bytes{%s}" % labels in of_master.exposition()
