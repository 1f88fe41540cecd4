"""One task's rows, from Arrow batches to acknowledged messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from twinlog.base.clock import wall_clock_ms
from twinlog.base.system_calls import keep_freed_memory
from twinlog.client.errors import NoRoute
from twinlog.spark.cluster import Cluster
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.properties import pair
from twinlog.spark.writing.queues import BLOCK_ROWS, layout_text, send_queue_numbers
from twinlog.spark.writing.rows import EncodedRows, Piece, pieces_of
from twinlog.spark.writing.send_queue import SendQueue, SendRequest
from twinlog.spark.writing.sender import Sender
from twinlog.spark.writing.stamped_write import StampedWrite, layout_blocks
from twinlog.spark.writing.stamps import LAYOUT_PROPERTY, STAMP_PROPERTY, Stamps
from twinlog.spark.writing.totals import SendTotals
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.properties import UNIQ_KEY
from twinlog.wire.values.message_id import month_ms

_WAITING_BYTES_MAX = 4 * 1024 * 1024  # rows are encoded while at most so many bytes are not acknowledged


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which part of a write a task is. Spark gives a retried task or a replayed batch the same numbers."""

    write_id: str
    batch_id: int = 0
    partition_id: int = 0


@dataclass(slots=True)
class _Topic:
    name: str
    queues: tuple[MessageQueue, ...]
    layout: str
    next_sequence: int = 0
    send_queues: dict[int, SendQueue] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)  # numbers of send queues of which all rows so far were stored before


class TaskWrite:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, place: TaskPlace) -> None:
        self._options = options
        self._place = place
        self._cluster = Cluster(options.cluster, waits=True)
        self._topics: dict[str, _Topic] = {}
        self._next_row = 0
        self._has_delays, self._has_times = False, options.deliver_at_ms is not None
        self._stamped: StampedWrite | None = None
        if options.idempotent:
            self._stamps = Stamps(place.write_id, place.batch_id, place.partition_id)
            self._stamped = StampedWrite(self._stamps, self._cluster, options)
            self._start = place.partition_id + place.batch_id
        else:
            self._stamps = Stamps(uuid.uuid4().hex, place.batch_id, place.partition_id)
            self._start = uuid.uuid4().int >> 96
        self._sender = Sender(options, self._cluster, self._stamped)

    def run(self, batches: Iterable[pa.RecordBatch]) -> SendTotals:
        """Write all rows and wait for every acknowledgement."""
        keep_freed_memory()  # columns and batches of megabytes come and go all the time
        try:
            for batch in batches:
                self._has_delays |= "delayLevel" in batch.schema.names
                self._has_times |= "deliverAt" in batch.schema.names
                for piece in pieces_of(batch, self._options, self._next_row, self._place.partition_id):
                    self._put(piece)
                    self._sender.drain(_WAITING_BYTES_MAX)
                self._next_row += len(batch)
            self._sender.drain()
        finally:
            self._sender.close()
            if self._stamped is not None:
                self._stamped.close()
        return self._sender.totals

    def _put(self, piece: Piece) -> None:
        topic = self._topics.get(piece.topic) or self._open(piece.topic)
        sequences = topic.next_sequence + np.arange(len(piece))
        topic.next_sequence += len(piece)
        numbers = send_queue_numbers(topic.queues, piece.columns, sequences, self._start, piece.rows)
        if (numbers != numbers[0]).any():
            order = np.argsort(numbers, kind="stable")
            piece, sequences, numbers = piece.take(order), sequences[order], numbers[order]
        rows = EncodedRows(piece, sequences, self._pairs(topic, sequences), self._options)
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(bounds):
            self._put_rows(topic, int(numbers[begin]), rows, begin, end)

    def _put_rows(self, topic: _Topic, number: int, rows: EncodedRows, begin: int, end: int) -> None:
        send_queue = topic.send_queues.get(number)
        if send_queue is None:
            count = len(topic.queues)
            send_queue = self._sender.open_queue(topic.queues[number % count], is_free=number >= count)
            topic.send_queues[number] = send_queue
            topic.unsure.add(number)
        first = begin
        if self._stamped is not None and number in topic.unsure:
            begin += self._stamped.stored(send_queue, rows, begin, end)
            self._sender.totals.skipped += begin - first
            if begin < end:
                topic.unsure.discard(number)
        for low, high, is_batch in rows.requests(begin, end):
            self._sender.put(send_queue, SendRequest(rows, low, high, is_batch))

    def _open(self, name: str) -> _Topic:
        route = self._cluster.existing(name, fresh=False)
        if not route.writable:
            raise NoRoute(name, ";".join(self._options.cluster.name_servers), "queue to write to")
        queues = route.writable
        if self._stamped is not None:
            queues = self._stamped.queues_of(name, route, has_delays=self._has_delays, has_times=self._has_times)
        topic = self._topics[name] = _Topic(name, queues, layout_text(queues))
        return topic

    def _pairs(self, topic: _Topic, sequences: np.ndarray) -> list[pa.Array]:
        """The properties that identify each row."""
        if self._stamped is None:
            sent_ms = month_ms(wall_clock_ms())
            return [pair(UNIQ_KEY, self._stamps.keys(topic.name, sequences, sent_ms))]
        pairs = [
            pair(UNIQ_KEY, self._stamps.keys(topic.name, sequences)),
            pair(STAMP_PROPERTY, self._stamps.texts(sequences)),
        ]
        # Only where it is looked for: brokers store rows faster that are alike.
        has_layout = (sequences % BLOCK_ROWS == 0) & (sequences < layout_blocks(topic.queues) * BLOCK_ROWS)
        if has_layout.any():
            pairs.append(pair(LAYOUT_PROPERTY, pa.array(np.where(has_layout, topic.layout, ""), pa.string())))
        return pairs
