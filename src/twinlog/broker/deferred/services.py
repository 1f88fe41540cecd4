"""The services of this room, made for one broker: delay levels, timers, transactions, and their rules for sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.broker.deferred import timer_handlers, transaction_handlers
from twinlog.broker.deferred.delay_service import DelayService
from twinlog.broker.deferred.timer_service import TimerService
from twinlog.broker.deferred.transaction_service import TransactionService
from twinlog.broker.sends import parking
from twinlog.replication.replica.metadata_sync_service import ExtraKind
from twinlog.wire.codes import RequestCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler


class DeferredServices:
    """The services that deliver or decide deferred messages; making them installs their rules in `ctx`."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self.delays = DelayService(ctx)
        self.timers = TimerService(ctx)
        self.transactions = TransactionService(ctx)
        ctx.step_down_listeners.append(self.transactions.step_down)
        parking.install(ctx, self._parked)

    def __iter__(self) -> Iterator[DelayService | TimerService | TransactionService]:
        """The services to run."""
        yield from (self.delays, self.timers, self.transactions)

    @property
    def synchronised(self) -> tuple[ExtraKind, ...]:
        """What a replica adopts from its master besides tables."""
        return (ExtraKind("timer", RequestCode.GET_TIMER_CHECK_POINT, self.timers.adopt_body),)

    def handlers(self) -> dict[int, Handler]:
        return {
            **transaction_handlers.handlers(self._ctx, self.transactions),
            **timer_handlers.handlers(self._ctx),
        }

    def timers_in_use(self) -> TimerService | None:
        """The timers; None while timerWheelEnable is false."""
        return self.timers if self._ctx.conf.store.timer_enabled else None

    def _parked(self, topic: str, due_ms: int) -> None:
        (self.delays if topic == SCHEDULE_TOPIC else self.timers).parked(due_ms)
