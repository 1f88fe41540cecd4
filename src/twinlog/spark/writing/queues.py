"""Which queue a row goes to: a function of the row, its place in the partition, and the topic's list of queues.

A topic with n queues has 2n *send queues*. Number i below n is queue i for the rows that ask for it (by queueId,
shardingKey or brokerName). Number n + i is the same queue for rows that may go to any queue: if its broker fails, they
are sent to another. Rows of the second kind stay together in blocks, so that they travel in large batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from twinlog.client.routing.routes import ordered_queues
from twinlog.spark.errors import BadRow
from twinlog.spark.writing.properties import RowNames
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.java_text import java_hash

BLOCK_ROWS = 128


def send_queue_numbers(
    queues: Sequence[MessageQueue], columns: dict[str, pa.Array], sequences: np.ndarray, start: int, rows: RowNames
) -> np.ndarray:
    """The number of the send queue of each row; tasks begin at different queues, this one at `start`."""
    blocks = start + sequences // BLOCK_ROWS
    count = len(queues)
    numbers = count + blocks % count
    brokers, queue_ids, keys = (columns.get(name) for name in ("brokerName", "queueId", "shardingKey"))
    if brokers is None and queue_ids is None and keys is None:
        return numbers
    by_broker, by_id, by_key = (_codes(column, len(numbers)) for column in (brokers, queue_ids, keys))
    combined = (by_broker.numbers * (by_id.size + 1) + by_id.numbers) * (by_key.size + 1) + by_key.numbers
    distinct, first, group = np.unique(combined, return_index=True, return_inverse=True)
    for code in range(len(distinct)):
        at = int(first[code])
        broker, queue_id, key = by_broker.value(at), by_id.value(at), by_key.value(at)
        if not broker and queue_id is None and not key:
            continue
        able = [
            number
            for number, queue in enumerate(queues)
            if (not broker or queue.broker_name == broker) and (queue_id is None or queue.queue_id == queue_id)
        ]
        if not able:
            wanted = f"queue {queue_id}" if queue_id is not None else "a queue"
            wanted += f" of broker {broker}" if broker else ""
            raise BadRow(
                f"{rows[at]}: topic {queues[0].topic} has no {wanted} to write to; there are {layout_text(queues)}"
            )
        members = np.flatnonzero(group == code)
        if key and queue_id is None:
            numbers[members] = able[abs(java_hash(str(key))) % len(able)]  # as Java's hash selector does
        else:
            numbers[members] = np.array(able)[blocks[members] % len(able)]
    return numbers


def layout_text(queues: Sequence[MessageQueue]) -> str:
    """`broker-a:4;broker-b:4`; `parse_layout` reads it."""
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.broker_name] = max(counts.get(queue.broker_name, 0), queue.queue_id + 1)
    return ";".join(f"{name}:{count}" for name, count in counts.items())


def parse_layout(topic: str, text: str) -> tuple[MessageQueue, ...]:
    return tuple(ordered_queues(topic, text))


class _Codes:
    """The values of a column as numbers: 0 for null, others from 1."""

    def __init__(self, numbers: np.ndarray, values: list) -> None:
        self.numbers, self._values = numbers, values
        self.size = len(values)

    def value(self, row: int) -> object:
        number = int(self.numbers[row])
        return self._values[number - 1] if number else None


def _codes(column: pa.Array | None, rows: int) -> _Codes:
    if column is None:
        return _Codes(np.zeros(rows, np.int64), [])
    encoded = column.dictionary_encode()
    numbers = encoded.indices.fill_null(-1).to_numpy().astype(np.int64) + 1
    return _Codes(numbers, encoded.dictionary.to_pylist())
