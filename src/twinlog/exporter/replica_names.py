"""Names for replicas: how far each is behind its master, and whether it answers.

`rocketmq_broker_commitlog_diff` is rocketmq-exporter's; the others are those of a Twinlog broker's own endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from twinlog.exporter.exporter_names import COMMITLOG_DIFF
from twinlog.exporter.families import Metric, Row
from twinlog.observe.cluster.broker_groups import Group
from twinlog.telemetry.rocketmq_names import NODE

REPLICA = (*NODE, "replica")
LAG_BYTES = Metric("rocketmq_ha_replica_lag_bytes", "Log bytes that a replica does not have", REPLICA)
LAG_MESSAGES = Metric("rocketmq_ha_replica_lag_messages", "Messages that a replica does not have", REPLICA)
LAG_SECONDS = Metric("rocketmq_ha_replica_lag_seconds", "Age of the oldest one", REPLICA)
IN_SYNC = Metric("rocketmq_ha_replica_in_sync", "1 while it is near enough to its master", REPLICA)
TRANSFER = Metric("rocketmq_ha_replica_transfer_bytes_per_second", "Log bytes that it receives a second", REPLICA)
REPLICAS = Metric("rocketmq_ha_replicas", "Replicas that answer", NODE)


def replica_rows(pair: Group) -> Iterator[Row]:
    """The replicas of one broker name. A number that is unknown has no series."""
    node = (pair.cluster, "broker", pair.name)
    yield REPLICAS, node, sum(1 for replica in pair.replicas if not replica.error)
    for replica in pair.replicas:
        lag = pair.lags.get(replica.broker_id)
        if lag is None:  # a silent one may still be measured: a Twinlog master knows what it acknowledged
            continue
        labels = (*node, str(replica.broker_id))
        numbers = {
            LAG_BYTES: lag.bytes,
            LAG_MESSAGES: lag.messages,
            LAG_SECONDS: None if lag.ms is None else lag.ms / 1000,
            IN_SYNC: None if lag.in_sync is None else float(lag.in_sync),
            TRANSFER: lag.bytes_per_second,
        }
        for metric, value in numbers.items():
            if value is not None:
                yield metric, labels, value
        if lag.bytes is not None:
            yield COMMITLOG_DIFF, (pair.cluster, replica.address, pair.name), lag.bytes
