"""Sends whose answer waits for a flush or for replicas, and when each answer leaves.

`flushDiskType` and `brokerRole` are read for each send, so an operator can change both while the broker runs. A message
with the property WAIT=false never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from twinlog.broker.sends.wait_queue import Finished, WaitQueue
from twinlog.replication.master.guard import MasterGuard
from twinlog.store.log.append import PutStatus
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.net.connection import Request
    from twinlog.settings.broker_conf import BrokerConf
    from twinlog.wire.command import Command

CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}

_LACKS_REPLICAS = frozenset({PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE})
_NEVER_MS = 1 << 62

WriteAnswer = Callable[[PutStatus], None]  # called once, when the status of the send is final


class Demand(Enum):
    """What a synchronous master needs of its replicas for one record."""

    NOTHING = "enough replicas have it, or none need to"
    WAIT = "a replica that keeps up will acknowledge it"
    UNAVAILABLE = "no replica is near enough to wait for"


class Replicas(Protocol):
    """The master's view of its replicas; it calls `PendingSends.replicated` when their reports arrive."""

    def demand(self, end: int) -> Demand: ...

    def missed(self, end: int) -> None: ...


class NoReplicas:
    """The replicas of a broker that has none."""

    def demand(self, end: int) -> Demand:
        return Demand.UNAVAILABLE

    def missed(self, end: int) -> None: ...


class PendingSends:
    """Answers sends as soon as their records are as safe as the configuration demands.

    `clock_ms` measures timeouts, so it must not jump: an answer would leave too early, or hours late.
    """

    def __init__(
        self, conf: Callable[[], BrokerConf], clock_ms: Callable[[], int], guard: MasterGuard | None = None
    ) -> None:
        self._conf = conf
        self._clock_ms = clock_ms
        self._guard = guard if guard is not None else MasterGuard(clock_ms)
        self._waiting: WaitQueue[WriteAnswer] = WaitQueue()
        self.replicas: Replicas = NoReplicas()
        self.why_late: Callable[[], str | None] = lambda: (
            None
        )  # the reason of a send that replicas lack; for its remark
        self.on_flush_wanted: list[Callable[[], None]] = []

    @property
    def anything_waits(self) -> bool:
        """Whether any send waits under these settings; the fast path reads it when the settings change."""
        conf = self._conf()
        return conf.store.flush_disk_type == "SYNC_FLUSH" or conf.broker.broker_role == "SYNC_MASTER"

    def answer(
        self, request: Request, response: Command, end: int, *, wait: bool, on_answer: Callable[[], None]
    ) -> Command | None:
        """`response` if it may leave now; None when it is sent later, with its final code.

        Call once per record, in the order of the log. `on_answer` is called when the response leaves.
        """
        if not wait or request.is_oneway:
            self.ask_for_flush()
            on_answer()
            return response

        def final(status: PutStatus) -> Command:
            on_answer()
            response.code, response.remark = CODES[status], self.remark(status) or response.remark
            return response

        status = self.hold(end, lambda status: request.connection.send(final(status)))
        return None if status is None else final(status)

    def remark(self, status: PutStatus) -> str | None:
        """What the answer says beside its code. Java: nothing."""
        return self.why_late() if status in _LACKS_REPLICAS else None

    def hold(self, end: int, write_answer: WriteAnswer) -> PutStatus | None:
        """The status of the records up to `end` if it is final now; None when `write_answer` gets it later."""
        conf, now_ms = self._conf(), self._clock_ms()
        flush_deadline_ms = replica_deadline_ms = None
        status = PutStatus.PUT_OK
        if conf.store.flush_disk_type == "SYNC_FLUSH":
            flush_deadline_ms = now_ms + conf.store.sync_flush_timeout_ms
        if conf.broker.broker_role == "SYNC_MASTER":
            demand = self.replicas.demand(end)
            if demand is Demand.WAIT:
                replica_deadline_ms = now_ms + conf.replication.ack_timeout_ms
            elif demand is Demand.UNAVAILABLE:
                status = PutStatus.SLAVE_NOT_AVAILABLE
        if flush_deadline_ms is None and replica_deadline_ms is None:
            return status
        self._waiting.add(
            end,
            write_answer,
            flush_deadline_ms=flush_deadline_ms,
            replica_deadline_ms=replica_deadline_ms,
            status=status,
        )
        if flush_deadline_ms is not None:
            self._wake_flush()
        return None

    def ask_for_flush(self) -> None:
        """Ask for a flush if it is synchronous: readers see a record only once it is durable, even if no send waits."""
        if self._conf().store.flush_disk_type == "SYNC_FLUSH":
            self._wake_flush()

    def flushed(self, end: int) -> None:
        """The log is durable before `end`."""
        self._send(self._waiting.flushed(end))

    def replicated(self, end: int) -> None:
        """Enough replicas have the log before `end`."""
        self._send(self._waiting.replicated(end))

    def expire(self) -> None:
        """Answer what has reached its deadline; replicas that did not report in time count as late from then on."""
        now_ms = self._clock_ms()
        missed = self._waiting.replica_missed(now_ms)
        self._send(self._waiting.expire(now_ms))
        if missed is not None:
            self.replicas.missed(missed)

    def expire_all(self) -> None:
        """Answer everything that waits, as if every deadline were reached."""
        self._send(self._waiting.expire(_NEVER_MS))

    @property
    def expires_in_s(self) -> float | None:
        """Seconds until `expire` next has something to do; None while nothing waits."""
        deadline_ms = self._waiting.deadline_ms
        return None if deadline_ms is None else max(0, deadline_ms - self._clock_ms()) / 1000

    @property
    def waits_for_flush(self) -> bool:
        return self._waiting.waits_for_flush

    @property
    def waits_for_replicas(self) -> bool:
        return self._waiting.waits_for_replicas

    def _wake_flush(self) -> None:
        for listener in self.on_flush_wanted:
            listener()

    def _send(self, finished: list[Finished[WriteAnswer]]) -> None:
        if finished and not self._guard.may_acknowledge:
            self._guard.when_confirmed(lambda: self._send_confirmed(finished))
            return
        for one in finished:
            one.answer(one.status)

    def _send_confirmed(self, finished: list[Finished[WriteAnswer]]) -> None:
        """Answer what was in doubt; a broker that was replaced meanwhile acknowledges nothing."""
        is_replaced = self._conf().broker.broker_role == "SLAVE"
        for one in finished:
            one.answer(PutStatus.FLUSH_SLAVE_TIMEOUT if is_replaced else one.status)
