"""Decides whether a send's answer must wait, and writes it when it need not wait any longer.

What `flushDiskType` and `brokerRole` demand is looked up per send, so an operator can change both on a
running broker. A message with the property WAIT=false never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from twinlog.broker.sends.wait_queue import AckGate, Settled
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

_NEVER_MS = 1 << 62

Settle = Callable[[PutStatus], None]  # writes an answer, once it is known what it says


class Demand(Enum):
    """What a synchronous master needs of its replicas for one record."""

    NOTHING = "enough replicas have it, or none need to"
    WAIT = "a replica that keeps up will acknowledge it"
    UNAVAILABLE = "no replica is near enough to wait for"


class Replicas(Protocol):
    """The master's view of its replicas; it calls `AckDesk.replicated` as their reports come in."""

    def demand(self, end: int) -> Demand: ...

    def missed(self, end: int) -> None: ...


class NoReplicas:
    """A broker that nobody follows."""

    def demand(self, end: int) -> Demand:
        return Demand.UNAVAILABLE

    def missed(self, end: int) -> None: ...


class AckDesk:
    """Answers sends as soon as their records are as safe as the configuration demands.

    `clock_ms` measures patience, so it should not jump: an answer would leave too early, or hours late.
    """

    def __init__(self, conf: Callable[[], BrokerConf], clock_ms: Callable[[], int]) -> None:
        self._conf = conf
        self._clock_ms = clock_ms
        self._gate: AckGate[Settle] = AckGate()
        self.replicas: Replicas = NoReplicas()
        self.on_flush_wanted: list[Callable[[], None]] = []

    @property
    def anything_waits(self) -> bool:
        """Whether sends have anything to wait for at all: the fast path asks once per batch."""
        conf = self._conf()
        return conf.store.flush_disk_type == "SYNC_FLUSH" or conf.broker.broker_role == "SYNC_MASTER"

    def answer(
        self, request: Request, response: Command, end: int, *, wait: bool, on_answer: Callable[[], None]
    ) -> Command | None:
        """`response` if it may leave now; None when the desk will send it, with its final code, later.

        Call once per record, in the order of the log. `on_answer` is called when the response leaves.
        """
        if not wait or request.is_oneway:
            self.appended()
            on_answer()
            return response

        def send(status: PutStatus) -> None:
            on_answer()
            response.code = CODES[status]
            request.connection.send(response)

        status = self.hold(end, send)
        if status is None:
            return None
        on_answer()
        response.code = CODES[status]
        return response

    def hold(self, end: int, settle: Settle) -> PutStatus | None:
        """What to tell now about the records up to `end`; None when `settle` will be told later."""
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
        self._gate.add(
            end,
            settle,
            flush_deadline_ms=flush_deadline_ms,
            replica_deadline_ms=replica_deadline_ms,
            status=status,
        )
        if flush_deadline_ms is not None:
            self._want_flush()
        return None

    def appended(self) -> None:
        """Something was stored that nobody waits for: with SYNC_FLUSH readers still see it only once it is durable."""
        if self._conf().store.flush_disk_type == "SYNC_FLUSH":
            self._want_flush()

    def flushed(self, end: int) -> None:
        """The log is durable before `end`."""
        self._send(self._gate.flushed(end))

    def replicated(self, end: int) -> None:
        """Enough replicas have the log before `end`."""
        self._send(self._gate.replicated(end))

    def expire(self) -> None:
        """Answer what has waited too long; replicas that kept it waiting are known as late from then on."""
        now_ms = self._clock_ms()
        missed = self._gate.replica_missed(now_ms)
        self._send(self._gate.expire(now_ms))
        if missed is not None:
            self.replicas.missed(missed)

    def give_up(self) -> None:
        """Answer everything that waits as if its patience were over."""
        self._send(self._gate.expire(_NEVER_MS))

    @property
    def patience_s(self) -> float | None:
        """Until `expire` next has something to do; None while nothing waits."""
        deadline_ms = self._gate.deadline_ms
        return None if deadline_ms is None else max(0, deadline_ms - self._clock_ms()) / 1000

    @property
    def waits_for_flush(self) -> bool:
        return self._gate.waits_for_flush

    @property
    def waits_for_replicas(self) -> bool:
        return self._gate.waits_for_replicas

    def _want_flush(self) -> None:
        for told in self.on_flush_wanted:
            told()

    def _send(self, settled: list[Settled[Settle]]) -> None:
        for one in settled:
            one.answer(one.status)
