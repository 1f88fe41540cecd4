"""What a broker knows about its replication: the document behind `twinlog replication status`.

Everything is in memory, except the age of a lag: for it, the timestamp of one record is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from twinlog.replication.master.link import LinkState
from twinlog.replication.master.log_marks import Lag
from twinlog.wire.errors import WireError

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.replication.replication_service import ReplicationService
    from twinlog.replication.master.replica_connection import ReplicaView

_FOLLOWING = (
    "state",
    "reason",
    "master_ha_address",
    "master_is_twinlog",
    "master_end",
    "last_read_ms",
    "last_write_ms",
    "bytes_received",
    "bytes_per_second",
    "reconnects",
    "refusals",
    "damaged_transfers",
)


class ReplicationReport:
    """Reads the state of replication, as a master and as a replica."""

    def __init__(self, ctx: BrokerContext, replication: ReplicationService) -> None:
        self._ctx = ctx
        self._replication = replication

    def document(self) -> dict[str, Any]:
        """The whole status, ready for JSON."""
        ctx, replication, store = self._ctx, self._replication, self._ctx.store
        document: dict[str, Any] = {
            "clusterName": ctx.settings.cluster_name,
            "brokerName": ctx.settings.broker_name,
            "brokerId": ctx.settings.broker_id,
            "address": ctx.settings.address,
            "role": ctx.settings.broker_role,
            "instance": replication.instance,
            "epoch": replication.epoch,
            "failover": ctx.master_is_chosen,
            "nowMs": ctx.wall_ms(),
            "logStart": store.log_start,
            "logEnd": store.log_end,
            "flushedEnd": store.flushed_end,
            "dispatchedEnd": store.dispatched_end,
            "segmentBytes": store.commit_log.segment_size,
            "lastStoreTimestamp": store.last_timestamp,
            "replicas": [self._replica(view) for view in replication.master.views()],
            "refusedConnections": replication.master.refused,
        }
        if failing := ctx.fence.failing():
            document["failedTasks"] = {name: _camel(msgspec.to_builtins(one)) for name, one in failing.items()}
        if not ctx.is_master:
            status, sync = replication.replica.status, replication.sync.status
            document["masterAddress"] = ctx.master_address
            document["following"] = _camel({name: getattr(status, name) for name in _FOLLOWING})
            document["metadata"] = {name: _camel(msgspec.to_builtins(kind)) for name, kind in sync.kinds.items()}
            document["metadataRounds"] = sync.rounds
            document["metadataSkipped"] = sync.skipped
        return document

    def lag(self, acked: int) -> Lag:
        """How far a replica that holds the log up to `acked` is behind."""
        now_ms = self._ctx.wall_ms()
        lag = self._replication.marks.lag(acked, now_ms)
        if lag.bytes and (stored_ms := self._stored_ms(acked)) is not None:
            lag = dataclasses.replace(lag, milliseconds=max(0, now_ms - stored_ms))
        return lag

    def is_in_sync(self, view: ReplicaView) -> bool:
        behind = self._ctx.store.log_end - view.acked
        keeps_up = view.state is LinkState.SENDING and not view.late and not view.behind
        return keeps_up and 0 <= behind < self._ctx.conf.replication.gap_bytes_max

    def replicas(self) -> Iterator[ReplicaView]:
        """Connections of replicas, without observers."""
        return (view for view in self._replication.master.views() if not view.observer)

    def _replica(self, view: ReplicaView) -> dict[str, Any]:
        lag = self.lag(view.acked)
        return {
            **_camel(msgspec.to_builtins(view)),
            "inSync": self.is_in_sync(view) and not view.observer,
            "lagBytes": lag.bytes,
            "lagMessages": lag.messages,
            "lagMessagesExact": lag.exact,
            "lagMs": lag.milliseconds,
        }

    def _stored_ms(self, physical_offset: int) -> int | None:
        """When the record at this offset was stored; None when none begins here, as may be with a Java replica."""
        try:
            message = self._ctx.store.message_at(physical_offset)
        except WireError:
            return None
        return message.store_timestamp if message is not None else None


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    """The same values under the names that JSON documents use."""
    words = ((name.split("_"), value) for name, value in values.items())
    return {first + "".join(map(str.title, rest)): value for (first, *rest), value in words}
