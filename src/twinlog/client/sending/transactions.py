"""Half messages: how a producer ends a transaction, and how it answers a broker that asks for the outcome."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from twinlog.client.sending.outgoing import SendResult
from twinlog.client.tasks import TaskSet
from twinlog.net.connection import Handler, Request
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode
from twinlog.wire.fields import decode_fields, encode_fields
from twinlog.wire.headers import CheckTransactionHeader, EndTransactionHeader
from twinlog.wire.message import Message, decode_message
from twinlog.wire.values import sys_flag
from twinlog.wire.values.message_id import parse_offset_message_id

log = get_logger(__name__)


class Outcome(Enum):
    """How a local transaction ended."""

    COMMIT = sys_flag.TRANSACTION_COMMIT
    ROLLBACK = sys_flag.TRANSACTION_ROLLBACK
    UNKNOWN = sys_flag.TRANSACTION_NONE  # the broker asks again later


@dataclass(frozen=True, slots=True)
class TransactionResult:
    sent: SendResult
    outcome: Outcome


def end_transaction_header(group: str, sent: SendResult, outcome: Outcome) -> EndTransactionHeader:
    return EndTransactionHeader(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=parse_offset_message_id(sent.offset_message_id)[2],
        commit_or_rollback=outcome.value,
        msg_id=sent.message_id,
        transaction_id=sent.transaction_id,
        topic=sent.queue.topic,
        broker_name=sent.queue.broker_name,
    )


class CheckBack:
    """Answers CHECK_TRANSACTION_STATE with what the user's function returns."""

    def __init__(self, group: str, check: Callable[[Message], Outcome | Awaitable[Outcome]] | None) -> None:
        self._group, self._check = group, check
        self._tasks = TaskSet()

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: self._check_asked}

    async def close(self) -> None:
        await self._tasks.close()

    def _check_asked(self, request: Request) -> None:
        header = decode_fields(CheckTransactionHeader, request.fields)
        message = decode_message(request.body or b"")
        if self._check is None:
            log.warning("a broker asks about a transaction, and check_transaction is not set", id=header.msg_id)
            return
        self._tasks.start(self._answer(request, header, message), "check transaction")

    async def _answer(self, request: Request, header: CheckTransactionHeader, message: Message) -> None:
        assert self._check is not None
        try:
            result = self._check(message)
            outcome = await result if inspect.isawaitable(result) else result
        except Exception as error:  # the user's code: the broker asks again, so nothing is lost
            log.error("check_transaction failed", id=header.msg_id, exc_info=error)
            return
        if outcome is Outcome.UNKNOWN:
            return
        end = EndTransactionHeader(
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=outcome.value,
            from_transaction_check=True,
            msg_id=header.msg_id,
            transaction_id=header.transaction_id,
            topic=message.topic,
            broker_name=header.broker_name,
        )
        if not request.connection.closed:
            request.connection.oneway(RequestCode.END_TRANSACTION, encode_fields(end))
