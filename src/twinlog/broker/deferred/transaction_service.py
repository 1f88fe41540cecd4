"""The tasks of transactions: writing op records, and the check that runs every transactionCheckInterval on a master.

Committing and rolling back happens in `transaction_handlers`; this service is given each outcome.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinlog.base.system_names import HALF_TOPIC
from twinlog.broker.deferred.transaction_check import TransactionCheck
from twinlog.broker.deferred.transaction_queues import TransactionQueues
from twinlog.broker.deferred.transaction_takeover import Steps, TakeOver, find_committed
from twinlog.broker.sends.parking import redelivery
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.deferred.parked_record import ParkedRecord
    from twinlog.wire.message import Message

log = get_logger(__name__)


class TransactionService:
    """The transactions of one broker."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self.queues = TransactionQueues(ctx)
        self._check = TransactionCheck(ctx, self.queues)
        self._takeover = TakeOver(ctx, self._learn)
        self.commits = 0
        self.rollbacks = 0

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write_ops(), name="write-op-records")
                tasks.create_task(self._check_regularly(), name="check-transactions")
        finally:
            self.step_down()

    def step_down(self) -> None:
        """Write the op records of all finished messages: the next master may be a Java broker."""
        if self._takeover.begun:
            self.queues.flush_all_ops()

    @property
    def open_count(self) -> int:
        """Messages whose producer has not decided."""
        return self.queues.open_count

    # -- becoming master -----------------------------------------------------------------------

    @property
    def has_taken_over(self) -> bool:
        """Whether the outcome of every earlier transaction is known, so that others may be ended."""
        return self._takeover.done

    async def take_over(self) -> None:
        """Wait until `has_taken_over`, or until this broker is not master any more."""
        await self._takeover.finish()

    def _learn(self) -> Steps:
        """Learn which messages are finished: from op records, then from commits behind the oldest open message."""
        queues, store = self.queues, self._ctx.store
        queues.reset()
        oldest_open: list[int] = []
        for queue_id in queues.queue_ids():
            yield from queues.read_ops(queue_id)
            physical_offset = queues.first_open(queue_id)
            if physical_offset is not None:
                oldest_open.append(physical_offset)
        found: list[Message] = []

        def note(message: Message) -> None:
            if not queues.is_ended(message):
                queues.note_end(message)
                found.append(message)

        yield from find_committed(store, min(oldest_open, default=store.log_end), queues.is_known, note)
        if found:
            log.info("op records of committed transactions were missing; they are written now", count=len(found))

    # -- ending --------------------------------------------------------------------------------

    def is_ended(self, message: Message | ParkedRecord) -> bool:
        """Whether this message, or another copy of it, was committed or rolled back before."""
        assert self._takeover.done, "the caller has waited for the take-over"
        return self.queues.is_ended(message)

    def ended(self, message: ParkedRecord, *, committed: bool) -> None:
        """The producer has decided; an op record names this message soon."""
        if committed:
            self.commits += 1
        else:
            self.rollbacks += 1
        self.queues.note_end(message)

    def resume(self, message: Message) -> bool:
        """Move a message that was given up back to the prepared queue, as if it was never checked."""
        pairs = {**message.properties, names.TRANSACTION_CHECK_TIMES: "0"}
        pairs.pop(names.TRAN_PREPARED_QUEUE_OFFSET, None)
        stored = self._ctx.store.append(redelivery(message, HALF_TOPIC, 0, pairs))
        self._ctx.finish_appends()
        return stored.ok

    # -- tasks ---------------------------------------------------------------------------------

    async def _write_ops(self) -> None:
        while True:
            if self._ctx.is_master:
                await self._takeover.finish()
            await self.queues.alarm.wait()
            await self._ctx.until_confirmed()
            if self._ctx.is_master:
                self.queues.flush_due_ops()

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._ctx.settings.transaction_check_interval_ms / 1000)
            if self._ctx.is_master:
                await self.check()

    async def check(self) -> None:
        """One round over all prepared queues."""
        await self._takeover.finish()
        if not self._takeover.done:
            return
        term = self._ctx.term
        for queue_id in self.queues.queue_ids():
            await self._ctx.until_confirmed()
            if self._ctx.is_master and self._ctx.term == term:
                await self._check.check_queue(queue_id, self._ctx.store.log_end, term)
