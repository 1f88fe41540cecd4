"""One round of the transaction check: asks producers about messages that they left open, and gives up old ones."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, cast

from twinlog.base.system_names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from twinlog.broker.deferred import transaction_rules
from twinlog.broker.deferred.durable import until_flushed
from twinlog.broker.deferred.transaction_queues import SLICE_MESSAGES
from twinlog.broker.deferred.transaction_rules import CheckDecision, CheckRules
from twinlog.broker.sends.parking import real_place, redelivery
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.net.connection import Connection
from twinlog.net.errors import NetError
from twinlog.telemetry.log import get_logger
from twinlog.wire import properties as names
from twinlog.wire.codes import RequestCode
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import CheckTransactionHeader
from twinlog.wire.message import encode_message
from twinlog.wire.properties import decode_properties

if TYPE_CHECKING:
    from twinlog.broker.clients.client_table import Client
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.deferred.transaction_queues import TransactionQueues
    from twinlog.store.log.append import Appended, Draft
    from twinlog.wire.message import Message

log = get_logger(__name__)
FLUSH_WAIT_S = 15.0


class TransactionCheck:
    """Checks the open messages of one broker."""

    def __init__(self, ctx: BrokerContext, queues: TransactionQueues) -> None:
        self._ctx = ctx
        self._queues = queues

    async def check_queue(self, queue_id: int, round_log_end: int, term: int) -> None:
        """Check a queue. If this broker steps down meanwhile, nothing more is appended or committed."""

        def over() -> bool:
            return not self._ctx.is_master or self._ctx.term != term

        store, queues, tracker = self._ctx.store, self._queues, self._queues.tracker(queue_id)
        op_before = tracker.done_offset
        queues.flush_ops([queue_id])
        for _ in queues.read_ops(queue_id):
            await asyncio.sleep(0)
            if over():
                return
        at = before = queues.progress(queue_id)
        end = store.max_offset(HALF_TOPIC, queue_id)
        while at < end and self._check_message(queue_id, at, round_log_end):
            queues.passed(queue_id, at)
            at += 1
            if (at - before) % SLICE_MESSAGES == 0:
                self._ctx.finish_appends()
                await asyncio.sleep(0)
                await self._ctx.until_confirmed()
                if over():
                    return
        self._ctx.finish_appends()
        if at == before and tracker.done_offset == op_before:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT_S):
                await until_flushed(store, store.log_end)
        if over():
            return
        now_ms = self._ctx.clock_ms()
        if at != before:
            self._ctx.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, queue_id, at, now_ms)
        if tracker.done_offset != op_before:
            self._ctx.offsets.commit(TRANSACTION_GROUP, OP_TOPIC, queue_id, tracker.done_offset, now_ms)

    def _check_message(self, queue_id: int, prepared_offset: int, round_log_end: int) -> bool:
        """Check one message; False when the round ends here."""
        if self._queues.is_known(queue_id, prepared_offset):
            return True
        message = self._queues.message(HALF_TOPIC, queue_id, prepared_offset)
        if message is None or self._queues.is_ended(message):
            return True
        decision = self._rules().decide(message, round_log_end, self._ctx.wall_ms())
        if decision is CheckDecision.WAIT:
            return False
        if decision is CheckDecision.GIVE_UP:
            return self._give_up(message)
        draft = transaction_rules.rewritten(message, decision)
        stored = self._ctx.store.append(draft)
        if not stored.ok:
            log.warning("a half message cannot be written again; trying next round", status=stored.status.name)
            return False
        if decision is CheckDecision.ASK:
            self._ask(self._as_stored(message, draft, stored))
        return True

    def _rules(self) -> CheckRules:
        settings = self._ctx.settings
        return CheckRules(
            settings.transaction_timeout_ms,
            settings.transaction_checks_max,
            self._ctx.conf.store.reserved_hours * 3_600_000,
        )

    def _as_stored(self, message: Message, draft: Draft, stored: Appended) -> Message:
        """`message` as its new copy has it."""
        message.properties = decode_properties(bytes(draft.properties))
        message.queue_offset, message.physical_offset = stored.queue_offset, stored.physical_offset
        message.store_timestamp = stored.store_timestamp
        message.store_host = self._ctx.settings.record_host
        return message

    def _give_up(self, message: Message) -> bool:
        ensure_topic(self._ctx, CHECK_MAX_TOPIC, 1)
        stored = self._ctx.store.append(redelivery(message, CHECK_MAX_TOPIC, 0))
        if stored.ok:
            log.warning("a transaction was given up", unique_key=message.message_id, topic=CHECK_MAX_TOPIC)
        return stored.ok

    def _may_see(self, topic: str, client: Client) -> bool:
        """Anybody can join a producer group, and the question contains the message. Java asks whoever is in it."""
        if (gate := self._ctx.gate) is None:
            return True
        source = cast(Connection, client.connection).peer[0]
        return gate.is_trusted(source) or (client.account is not None and gate.may_send(client.account, topic, source))

    def _ask(self, message: Message) -> None:
        """Send CHECK_TRANSACTION_STATE to one live connection of the producer group, if there is one."""
        group = message.properties.get(names.PGROUP, "")
        if (place := real_place(message)) is None:
            return
        client = self._ctx.clients.next_producer(group, partial(self._may_see, place[0]))
        if client is None:
            return
        key = message.properties.get(names.UNIQ_KEY)
        header = CheckTransactionHeader(
            topic=HALF_TOPIC,
            tran_state_table_offset=message.queue_offset,
            commit_log_offset=message.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=message.offset_message_id,
            broker_name=self._ctx.settings.broker_name,
        )
        body = encode_message(transaction_rules.check_body(message, *place))
        with contextlib.suppress(NetError):  # the next round asks again, perhaps another connection
            cast(Connection, client.connection).oneway(RequestCode.CHECK_TRANSACTION_STATE, encode_fields(header), body)
