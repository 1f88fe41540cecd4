"""Sends in Spark's tasks: the messages of a queue one batch after another, without those that the target holds.

A task gets whole queues, sorted by offset. For each it first reads the stamps in the target queue. A queue has one
request in flight at a time, since a broker may store two in any order. A request whose answer is lost is not sent again
before the end of the target queue was read. One case remains: a request that is still in flight at that moment. If the
broker stores it later, the target holds its messages twice, which the summary counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from twinlog.base.clock import monotonic_ms, wall_clock_ms
from twinlog.base.system_names import AUTO_CREATE_TOPIC
from twinlog.client.errors import ClientError, name_of
from twinlog.client.sending.outgoing import STORED_CODES
from twinlog.net.errors import NetError, RequestTimeout
from twinlog.spark.cluster import AWAY, Cluster
from twinlog.spark.errors import CannotRead
from twinlog.spark.jobs.restore.restore_plan import (
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    ORIGIN,
    CannotRestore,
    element,
    sends_alone,
    stamp_prefix,
)
from twinlog.spark.offsets import decode_offsets, queue_text, where
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.queue_ranges import QueueRange
from twinlog.spark.reading.brokers.queue_rows import read_queue
from twinlog.spark.remoting import connection_to, forget_connection
from twinlog.spark.schema import arrow_schema
from twinlog.telemetry.log import get_logger
from twinlog.wire.batch import BatchElement, encode_batch
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command
from twinlog.wire.fields import encode_fields
from twinlog.wire.headers import SendHeaderV2
from twinlog.wire.properties import WAIT, encode_properties

pc: Any = pyarrow.compute  # its functions are created at import: type checkers do not see them
log = get_logger(__name__)
_COUNTS = ("sent", "present", "empty")
SENT_COLUMNS = {"topic": "string", "brokerName": "string", "queueId": "int", **dict.fromkeys(_COUNTS, "bigint")}
_SENT_SCHEMA = arrow_schema(SENT_COLUMNS)
_TRIES = 6
_FIRST_PAUSE_S = 0.2
_PRODUCER_GROUP = "twinlog-restore"
_AGAIN_LATER = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class SendQueues:
    """The function that tasks run; `targets` is {source queue: target queue} as text."""

    name: str
    options: Mapping[str, str]
    targets: Mapping[str, str]
    batch: int = BATCH_COUNT_MAX

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        current: QueueSender | None = None
        for batch in batches:
            for row in batch.to_pylist():
                queue = MessageQueue(row["topic"], row["brokerName"], row["queueId"])
                if current is None or current.queue != queue:
                    if current is not None:
                        yield _finished_row(current)
                    current = self._sender(queue)
                current.add(row["queueOffset"], row["body"] or b"", row["flag"] or 0, dict(row["properties"] or ()))
        if current is not None:
            yield _finished_row(current)

    def _sender(self, queue: MessageQueue) -> QueueSender:
        (target,) = decode_offsets({self.targets[queue_text(queue)]: 0})
        return QueueSender(Target(target, self.options), self.name, queue, self.batch)


def _finished_row(sender: QueueSender) -> pa.RecordBatch:
    sender.finish()
    queue = sender.queue
    row = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
    return pa.RecordBatch.from_pylist([{**row, **{name: getattr(sender, name) for name in _COUNTS}}], _SENT_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Pending:
    offset: int
    element: BatchElement


class QueueSender:
    """Sends one queue of the source to its queue of the target."""

    def __init__(self, target: Target, name: str, queue: MessageQueue, batch: int = BATCH_COUNT_MAX) -> None:
        self.queue = queue
        self.sent = self.present = self.empty = 0
        self._target, self._name = target, name
        self._count_max = 1 if sends_alone(target.queue.topic) else batch
        self._prefix = stamp_prefix(name, queue)
        self._stored, self._seen_to = target.stamps(self._prefix, 0)
        self._last = -1
        self._pending: list[_Pending] = []
        self._pending_bytes = 0

    def add(self, offset: int, body: bytes, flag: int, properties: Mapping[str, str]) -> None:
        if offset == self._last:  # the same store was given twice
            return
        self._last = offset
        if offset in self._stored:
            self.present += 1
            return
        if not body:  # stores may hold such a message, but no broker accepts it
            log.warning("a message without a body is left out", where=where(self.queue, offset))
            self.empty += 1
            return
        one = element(self._name, self.queue, offset, body, flag, properties)
        size = len(one.body) + len(one.properties) + 22
        if self._pending_bytes + size > BATCH_BYTES_MAX or len(self._pending) >= self._count_max:
            self.finish()
        self._pending.append(_Pending(offset, one))
        self._pending_bytes += size

    def finish(self) -> None:
        """Send the pending messages; returns when they are stored."""
        retries = _Retries(self._target.wait_ms)
        in_doubt = False
        while self._pending:
            try:
                if in_doubt:
                    self._drop_stored()
                    in_doubt = False
                    continue
                self._target.send([one.element for one in self._pending], where(self.queue, self._pending[0].offset))
            except (NetError, ClientError, CannotRead, _Busy) as error:
                in_doubt = True
                place = where(self.queue, self._pending[0].offset)
                retries.check(error, place, monotonic_ms())
                log.warning("a send failed, reading the target before it is repeated", where=place, error=str(error))
                self._target.forget()
                time.sleep(retries.pause_s)
                continue
            self.sent += len(self._pending)
            self._pending = []
        self._pending_bytes = 0

    def _drop_stored(self) -> None:
        """Drop the pending messages that the target holds."""
        found, self._seen_to = self._target.stamps(self._prefix, self._seen_to)
        arrived = [one for one in self._pending if one.offset in found]
        self.sent += len(arrived)
        self._pending = [one for one in self._pending if one.offset not in found]


class _Retries:
    """How long a request is retried: a few times if it is refused, for `wait_ms` if its broker is away."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._failures = self._refusals = 0
        self._away_since_ms: float | None = None

    def check(self, error: Exception, place: str, now_ms: float) -> None:
        """CannotRestore if there are no more retries."""
        self._failures += 1
        if not isinstance(error, AWAY) or isinstance(error, RequestTimeout):
            self._refusals += 1
        elif self._away_since_ms is None:
            self._away_since_ms = now_ms
        if self._failures < _TRIES:
            return
        hint = ""
        if self._refusals < _TRIES:
            elapsed_ms = 0 if self._away_since_ms is None else now_ms - self._away_since_ms
            if elapsed_ms < self._wait_ms:
                return
            hint = f"its broker has been away for {elapsed_ms / 1000:.0f} s: start it, or set --option brokerWait; "
        raise CannotRestore(
            f"{place}: not stored after {self._failures} tries: {error}; {hint}run again to continue"
        ) from error

    @property
    def pause_s(self) -> float:
        return _FIRST_PAUSE_S * 2 ** min(self._failures - 1, _TRIES - 2)


class _Busy(Exception):
    """A broker is busy: try again later."""


class Target:
    """A queue that messages are sent to and read back from."""

    def __init__(self, queue: MessageQueue, options: Mapping[str, str]) -> None:
        self.queue = queue
        self._options = read_options({**options, "topic": queue.topic}, streaming=False)
        self.wait_ms = self._options.cluster.broker_wait_ms
        self._cluster = Cluster(self._options.cluster, waits=True)
        self._address = ""

    def stamps(self, prefix: str, start: int) -> tuple[frozenset[int], int]:
        """The old offsets stamped with `prefix` in the queue from `start` on, and up to where it was read."""
        low, high = self._cluster.min_offsets([self.queue]), self._cluster.max_offsets([self.queue])
        begin, end = max(low[self.queue], start), high[self.queue]
        found: set[int] = set()
        if begin < end:
            columns = {"queueOffset": "bigint", "properties": "map<string,string>"}
            for batch in read_queue(self._options, columns, QueueRange(self.queue, begin, end)):
                found.update(stamped(batch, prefix).tolist())
        return frozenset(found), max(end, start)

    def send(self, elements: list[BatchElement], place: str) -> None:
        """Returns when the broker has stored them."""
        self._address = self._cluster.address_of(self.queue)
        connection = connection_to(self._address, self._options.cluster)
        (answer,) = connection.ask([send_command(self.queue, elements, wall_clock_ms())])
        if answer.code in _AGAIN_LATER:
            raise _Busy(f"{self._address} answers {name_of(ResponseCode, answer.code)}: {answer.remark}")
        if answer.code not in STORED_CODES:
            problem = f"{self._address} refuses it with {name_of(ResponseCode, answer.code)}: {answer.remark}"
            raise CannotRestore(f"{place}: {problem}; check the topic's permissions and the broker's size limit")

    def forget(self) -> None:
        """After a failure: close the connection and drop the cached route."""
        forget_connection(self._address, self._options.cluster)
        self._cluster = Cluster(self._options.cluster, waits=True)


def stamped(batch: pa.RecordBatch, prefix: str) -> np.ndarray:
    """The old offsets of the rows that carry the stamp."""
    origins = pc.map_lookup(batch.column("properties"), pa.scalar(ORIGIN), "first")
    ours = pc.fill_null(pc.starts_with(origins, prefix), False)
    numbers = pc.utf8_slice_codeunits(origins.filter(ours), len(prefix))
    digits = numbers.filter(pc.match_substring_regex(numbers, "^[0-9]+$"))
    return digits.cast(pa.int64()).to_numpy(zero_copy_only=False)


def send_command(queue: MessageQueue, elements: list[BatchElement], now_ms: int) -> Command:
    """One request for some messages; a single message is a plain send, which every topic accepts."""
    alone = len(elements) == 1
    wait = encode_properties({WAIT: "true"})
    header = SendHeaderV2(
        producer_group=_PRODUCER_GROUP,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=elements[0].flag if alone else 0,
        properties=((elements[0].properties if alone else b"") + wait).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=not alone,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_MESSAGE_V2 if alone else RequestCode.SEND_BATCH_MESSAGE
    body = elements[0].body if alone else encode_batch(elements)
    return Command(code, fields=encode_fields(header), body=body)
