"""What waits to be sent to one queue, and how a request of it is encoded."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.spark.offsets import where
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.rows import EncodedRows
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import SendHeaderV2


@dataclass(slots=True)
class SendRequest:
    """Rows `begin` to `end` of `rows`, as one batch or as one message."""

    rows: EncodedRows
    begin: int
    end: int
    is_batch: bool

    @property
    def size(self) -> int:
        return int(self.rows.offsets[self.end] - self.rows.offsets[self.begin])


@dataclass(slots=True)
class SendQueue:
    """The requests for one queue, in their order; a free one may change to another queue."""

    queue: MessageQueue
    is_free: bool
    waiting: deque[SendRequest] = field(default_factory=deque)
    is_in_flight: bool = False  # the first of `waiting` is sent and not answered
    in_doubt: bool = False  # the first of `waiting` was sent; whether it was stored is unknown
    errors: list[str] = field(default_factory=list)  # since the last success
    refusals: int = 0  # since the last success: refused, or not answered in time
    away_since: float | None = None  # since when its broker is away

    def reset_failures(self) -> None:
        self.errors.clear()
        self.refusals, self.away_since = 0, None

    def __str__(self) -> str:
        """The queue, and the rows that are sent next, as error messages name them."""
        request = self.waiting[0] if self.waiting else None
        if request is None:
            return where(self.queue)
        first = request.rows.piece.rows[request.begin]
        return f"{where(self.queue)} ({first} and {request.end - request.begin - 1} more)"


@dataclass(slots=True)
class SendTotals:
    """What a task did: it stored `rows`; an earlier attempt had stored the `skipped` ones."""

    rows: int = 0
    skipped: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    unsafe: Counter[str] = field(default_factory=Counter)  # rows stored less safely than wished, by status
    last_offsets: dict[MessageQueue, int] = field(default_factory=dict)


class StoredRows(Protocol):
    """Finds out what brokers hold, for a write that must store no row twice."""

    def count_stored(self, send_queue: SendQueue, request: SendRequest) -> int:
        """How many rows at the front of a request in doubt are stored."""
        ...

    def check_index(self, send_queue: SendQueue, rows: EncodedRows, row: int) -> None:
        """Raise if the broker does not find this row, which it has acknowledged."""
        ...


def send_command(options: WriteOptions, queue: MessageQueue, request: SendRequest) -> Command:
    rows, begin = request.rows, request.begin
    if request.is_batch:
        # The wrapper has no unique key: a 5.3.3 broker would write it over those of the messages.
        body, properties, flag = bytes(rows.batch_body(begin, request.end)), "", 0
        code = RequestCode.SEND_BATCH_MESSAGE
    else:
        body, properties = rows.bodies[begin].as_py(), rows.properties[begin].as_py().decode()
        code, flag = RequestCode.SEND_MESSAGE_V2, int(rows.flags[begin])
    header = SendHeaderV2(
        producer_group=options.group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=int(rows.sys_flags[begin]),
        born_timestamp=wall_clock_ms(),
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=request.is_batch,
        broker_name=queue.broker_name,
    )
    return Command(code, fields=encode_fields(header), body=body)
