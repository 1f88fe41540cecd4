"""Everything by which a message waits, comes again or is decided on later, put together for one broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.broker.deferred import timer_handlers, transaction_handlers
from twinlog.broker.deferred.delay_service import DelayService
from twinlog.broker.deferred.timer_service import TimerService
from twinlog.broker.deferred.transaction_service import TransactionService
from twinlog.broker.replication import metadata_handlers
from twinlog.broker.sends import message_rules
from twinlog.broker.stats import runtime_info
from twinlog.replication.metadata.sync_service import ExtraKind
from twinlog.wire.codes import RequestCode

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler


class DeferredServices:
    """Delayed messages, timers and transactions of one broker; making it installs their rules in `ctx`."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self.delays = DelayService(ctx)
        self.timers = TimerService(ctx)
        self.transactions = TransactionService(ctx)
        ctx.step_down_listeners.append(self.transactions.step_down)
        message_rules.install(ctx, self._parked)

    def __iter__(self) -> Iterator[DelayService | TimerService | TransactionService]:
        """The services to run."""
        yield from (self.delays, self.timers, self.transactions)

    @property
    def synchronised(self) -> tuple[ExtraKind, ...]:
        """What a replica takes over from its master besides tables."""
        return (ExtraKind("timer", RequestCode.GET_TIMER_CHECK_POINT, self.timers.adopt_body),)

    def handlers(self) -> dict[int, Handler]:
        return {
            **transaction_handlers.handlers(self._ctx, self.transactions),
            **timer_handlers.handlers(self._ctx),
            **metadata_handlers.handlers(self._ctx, self._timer_state),
            **runtime_info.handlers(self._ctx, self.timers),
        }

    def _timer_state(self) -> TimerService | None:
        return self.timers if self._ctx.conf.store.timer_enabled else None

    def _parked(self, topic: str, due_ms: int) -> None:
        (self.delays if topic == SCHEDULE_TOPIC else self.timers).parked(due_ms)
