"""What the sends of a SYNC master wait for: how many replicas, and whether they have reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinlog.base.clock import monotonic_ms
from twinlog.broker.sends.pending_sends import Demand
from twinlog.net.busy_wait import BusyWait
from twinlog.replication.master.replica_acks import replicas_needed
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.failover.ack_rule import AckRule
    from twinlog.replication.master.replica_acks import ReplicaAcks

log = get_logger(__name__)


class SendDemand:
    """Connects the sends that wait with the reports of replicas."""

    def __init__(self, ctx: BrokerContext, acks: ReplicaAcks) -> None:
        self._ctx = ctx
        self._acks = acks
        self._busy_wait = BusyWait(lambda: ctx.conf.replication.busy_wait_seconds)
        self.rule: AckRule | None = None  # of a master that etcd has chosen: the in-sync set counts, not a number
        self.counted_out = 0  # how often a replica was late or behind, so that no send waits for it any more
        self.settling_role: str | None = None  # the role in which sends were accepted that still wait for an answer
        self.reported = asyncio.Event()  # set by every report of a replica

    @property
    def replicas_needed(self) -> int:
        """How many replicas a send waits for."""
        return self._needed(self._ctx.settings.broker_role)

    def _needed(self, role: str) -> int:
        settings = self._ctx.conf.replication
        needed = replicas_needed(role, settings.in_sync_replicas)
        if needed == 0 or not settings.in_sync_adapts:
            return needed
        near = self._acks.in_sync(self._ctx.store.log_end, settings.gap_bytes_max)
        return max(min(needed, near), settings.in_sync_replicas_min - 1)

    def demand(self, end: int) -> Demand:
        """What the record that ends at `end` needs of the replicas."""
        ctx, settings = self._ctx, self._ctx.conf.replication
        if self.rule is not None:
            return self._demand_of_members(self.rule, end)
        needed, log_end = self.replicas_needed, ctx.store.log_end
        if needed == 0 or self._acks.safe_end(needed, log_end) >= end:
            return Demand.NOTHING
        near = self._acks.in_sync(end, settings.gap_bytes_max)
        return Demand.WAIT if near >= needed else Demand.UNAVAILABLE

    def _demand_of_members(self, rule: AckRule, end: int) -> Demand:
        ends = self._acks.ends()
        if rule.end(ends, self._ctx.store.log_end) >= end:
            return Demand.NOTHING
        return Demand.WAIT if rule.may_wait(ends) else Demand.UNAVAILABLE

    def missed(self, end: int) -> None:
        """A send waited too long for the log before `end` to be on its replicas."""
        if self.rule is not None:
            self.rule.missed(self._acks.ends(), end)
        for row in self._acks.missed(end):
            self.counted_out += 1
            text = "a replica is late; sends do not wait for it until it acknowledges again"
            log.warning(text, peer=row.peer, acked=row.acked, wanted=end)
        self._adapt()

    def tick(self) -> None:
        """Twice a second: find replicas that do not catch up, or have caught up again."""
        ctx, settings = self._ctx, self._ctx.conf.replication
        if not ctx.is_master:
            return
        log_end, ms_max = ctx.store.log_end, settings.not_caught_up_ms_max
        for row in self._acks.tick(log_end, monotonic_ms(), ms_max):
            if row.behind:
                self.counted_out += 1
                text = "a replica does not catch up; it is not in sync until it has"
                log.warning(text, peer=row.peer, acked=row.acked, log_end=log_end, after_ms=ms_max)
            else:
                log.info("a replica has caught up and is in sync again", peer=row.peer, acked=row.acked)
        self._adapt()

    def _adapt(self) -> None:
        """Answer the sends that need fewer replicas now, if enableAutoInSyncReplicas is set."""
        if self._ctx.conf.replication.in_sync_adapts and self._ctx.pending_sends.waits_for_replicas:
            self.acknowledged()

    def acknowledged(self) -> None:
        """A replica has reported, or the count of replicas has changed: answer the sends that are safe now."""
        ctx = self._ctx
        self.reported.set()
        role = self.settling_role or ctx.settings.broker_role
        if role == "SYNC_MASTER":
            log_end = ctx.store.log_end
            if self.rule is not None:
                safe_end = self.rule.end(self._acks.ends(), log_end)
            else:
                safe_end = self._acks.safe_end(self._needed(role), log_end)
            ctx.pending_sends.replicated(safe_end)
            if not ctx.pending_sends.waits_for_replicas:
                self._busy_wait.arrived()

    def expect_reports(self) -> None:
        """After each chunk of requests: a replica that keeps up reports sooner than a sleeping loop would wake up."""
        if self._ctx.pending_sends.waits_for_replicas:
            self._busy_wait.expect()

    def log_demand(self) -> None:
        """Log at the start how many replicas a SYNC master waits for, and why."""
        role, given = self._ctx.settings.broker_role, self._ctx.conf.replication.in_sync_replicas
        if role == "SYNC_MASTER":
            needed = self.replicas_needed
            why = "inSyncReplicas is not set" if given is None else f"inSyncReplicas={given} counts the master"
            log.info("a send is acknowledged when replicas hold it", replicas=needed, because=why)
