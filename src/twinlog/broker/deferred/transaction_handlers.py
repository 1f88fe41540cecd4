"""Ending a transaction (37), and resuming one that was given up (323)."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from twinlog.broker.deferred import transaction_rules
from twinlog.broker.deferred.parked_record import parked_at
from twinlog.broker.sends.copy_budget import check_copy
from twinlog.broker.sends.parking import real_place
from twinlog.net.access import check_topic
from twinlog.net.connection import Request
from twinlog.net.errors import RequestRefused
from twinlog.security.request_needs import PUB, UPDATE
from twinlog.store.log.append import PutStatus
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import UNSET_REMARK, RequestCode, ResponseCode
from twinlog.wire.command import decode_header
from twinlog.wire.errors import WireError
from twinlog.wire.frame import JSON
from twinlog.wire.values.message_id import parse_offset_message_id
from twinlog.wire.values.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.deferred.parked_record import ParkedRecord
    from twinlog.broker.deferred.transaction_service import TransactionService
    from twinlog.broker.sends.parking import Parked
    from twinlog.net.connection import Connection, Handler
    from twinlog.store.log.append import Appended
    from twinlog.wire.command import Command
    from twinlog.wire.headers import EndTransactionHeader
    from twinlog.wire.sends.end_headers import EndFields, UnhandledEnd

log = get_logger(__name__)


def handlers(ctx: BrokerContext, transactions: TransactionService) -> dict[int, Handler]:
    ends = TransactionHandlers(ctx, transactions)
    ctx.end_together = ends.end_together
    return {RequestCode.END_TRANSACTION: ends.end, RequestCode.RESUME_CHECK_HALF_MESSAGE: ends.resume}


class TransactionHandlers:
    """Commits and rolls back as producers decide."""

    def __init__(self, ctx: BrokerContext, transactions: TransactionService) -> None:
        self._ctx = ctx
        self._transactions = transactions

    def end(self, request: Request) -> Command | Awaitable[Command] | None:
        ctx = self._ctx
        if not ctx.is_master:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, UNSET_REMARK)
        header = transaction_rules.read_end(request.fields)
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None  # the producer does not know yet; Java does not answer either
        message = self._prepared_message(header)
        self._check_topic(request, message, PUB)
        if self._is_late(message, header):
            return request.reply(ResponseCode.ILLEGAL_OPERATION)
        if not self._transactions.has_taken_over:
            return self._end_later(request, header)
        self._end_message(header, message)
        return request.reply()

    def end_together(self, connection: Connection, ends: Sequence[UnhandledEnd]) -> None:
        """As `end` for each of these oneway requests, which came in one chunk: nobody gets the outcome."""
        ctx = self._ctx
        for header, encoded in ends:
            try:
                if not (ctx.is_master and ctx.guard.is_valid and self._transactions.has_taken_over):
                    connection.handle(decode_header(encoded, JSON, Request))
                elif header.commit_or_rollback in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
                    message = self._prepared_message(header)
                    if not self._is_late(message, header):
                        self._end_message(header, message)
            except (RequestRefused, WireError):
                continue
            except Exception as error:
                log.error("a transaction cannot be ended", peer=connection.peer_text, exc_info=error)

    async def _end_later(self, request: Request, header: EndTransactionHeader | EndFields) -> Command:
        """End it as soon as this new master has learnt which transactions its predecessor ended."""
        while self._ctx.is_master and not self._transactions.has_taken_over:
            await self._transactions.take_over()
            await self._ctx.until_confirmed()
        if not self._ctx.is_master:
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, UNSET_REMARK)
        self._end_message(header, self._prepared_message(header))
        self._ctx.publish_appends()
        return request.reply()

    def _check_topic(self, request: Request, message: Parked, actions: tuple[str, ...]) -> None:
        """The message is in a topic of the broker's own; what counts is where it goes."""
        if (place := real_place(message)) is not None:
            check_topic(self._ctx.gate, request, place[0], actions)

    def _prepared_message(self, header: EndTransactionHeader | EndFields) -> ParkedRecord:
        offset = header.commit_log_offset
        message = parked_at(self._ctx.store, offset) if offset is not None and offset >= 0 else None
        problem = transaction_rules.end_problem(message, header)
        if problem is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, problem)
        assert message is not None, "a missing message is a problem"
        return message

    def _is_late(self, message: ParkedRecord, header: EndTransactionHeader | EndFields) -> bool:
        ctx = self._ctx
        return transaction_rules.came_too_late(message, header, ctx.settings.transaction_timeout_ms, ctx.wall_ms())

    def _end_message(self, header: EndTransactionHeader | EndFields, message: ParkedRecord) -> None:
        """End it. Readers see the message after `publish_appends`, which connections call after a chunk."""
        if not self._transactions.is_ended(message):
            commit = header.commit_or_rollback == TRANSACTION_COMMIT
            if commit:
                self._commit(message)
            self._transactions.ended(message, committed=commit)

    def _commit(self, message: ParkedRecord) -> None:
        place = real_place(message)
        if place is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        draft = transaction_rules.committed(message, *place)
        self._ctx.redirect(draft)
        appended = self._ctx.store.append(draft)
        self._ctx.pending_sends.ask_for_flush()
        check_final(self._ctx, appended)

    def resume(self, request: Request) -> Command:
        text = (request.fields or {}).get("msgId", "")
        try:
            offset = parse_offset_message_id(text)[2]
        except WireError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        check_copy(self._ctx, request.connection, "another half message that is resumed")
        message = self._ctx.store.message_at(offset) if offset >= 0 else None
        if message is None or real_place(message) is None:
            remark = f"no half message with the id {text}; give the offsetMsgId of a message that was given up"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._check_topic(request, message, UPDATE)
        if not self._transactions.resume(message):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        self._ctx.copy_budget.pay(request.connection.peer[0], message.store_size)
        return request.reply()


def check_final(ctx: BrokerContext, appended: Appended) -> None:
    """Raise the answer to a producer whose committed message was not stored."""
    if appended.ok:
        return
    limit = ctx.conf.store.message_bytes_max
    illegal = (
        "The message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {limit}B, msg properties length limit 32KB."
    )
    code, remark = {
        PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, illegal),
        PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, illegal),
        PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."),
        PutStatus.CREATE_SEGMENT_FAILED: (
            ResponseCode.SYSTEM_ERROR,
            "Create mapped file failed, server is busy or broken.",
        ),
        PutStatus.PAGE_CACHE_BUSY: (ResponseCode.SYSTEM_ERROR, "OS page cache busy, please try another machine"),
    }.get(appended.status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"))
    raise RequestRefused(code, remark)
