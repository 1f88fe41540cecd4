"""Which queue a row goes to: a function of the row, its place in the partition, and the topic's list of queues.

A *lane* is a queue as rows see it. Lane n below the number of queues is the n-th queue for rows that ask for it (by
queueId, shardingKey or brokerName); lane n + queues is the same queue for rows that would go anywhere, and which may
therefore be sent elsewhere when its broker fails. Rows of the second kind stay together in blocks, so that they travel
in large batches.
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


def lanes_of(
    queues: Sequence[MessageQueue], columns: dict[str, pa.Array], sequences: np.ndarray, start: int, rows: RowNames
) -> np.ndarray:
    """The lane of each row; `start` is where this task begins in the list, so that tasks do not all begin at 0."""
    blocks = start + sequences // BLOCK_ROWS
    count = len(queues)
    lanes = count + blocks % count
    brokers, queue_ids, keys = (columns.get(name) for name in ("brokerName", "queueId", "shardingKey"))
    if brokers is None and queue_ids is None and keys is None:
        return lanes
    by_broker, by_id, by_key = (_codes(column, len(lanes)) for column in (brokers, queue_ids, keys))
    combined = (by_broker.numbers * (by_id.size + 1) + by_id.numbers) * (by_key.size + 1) + by_key.numbers
    distinct, first, group = np.unique(combined, return_index=True, return_inverse=True)
    for number in range(len(distinct)):
        at = int(first[number])
        broker, queue_id, key = by_broker.value(at), by_id.value(at), by_key.value(at)
        if not broker and queue_id is None and not key:
            continue
        able = [
            lane
            for lane, queue in enumerate(queues)
            if (not broker or queue.broker_name == broker) and (queue_id is None or queue.queue_id == queue_id)
        ]
        if not able:
            wanted = f"queue {queue_id}" if queue_id is not None else "a queue"
            wanted += f" of broker {broker}" if broker else ""
            raise BadRow(
                f"{rows[at]}: topic {queues[0].topic} has no {wanted} to write to; there are {layout_text(queues)}"
            )
        members = np.flatnonzero(group == number)
        if key and queue_id is None:
            lanes[members] = able[abs(java_hash(str(key))) % len(able)]  # as Java's hash selector does
        else:
            lanes[members] = np.array(able)[blocks[members] % len(able)]
    return lanes


def layout_text(queues: Sequence[MessageQueue]) -> str:
    """`broker-a:4;broker-b:4`, from which `parse_layout` makes the list again."""
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.broker_name] = max(counts.get(queue.broker_name, 0), queue.queue_id + 1)
    return ";".join(f"{name}:{count}" for name, count in counts.items())


def parse_layout(topic: str, text: str) -> tuple[MessageQueue, ...]:
    return tuple(ordered_queues(topic, text))


class _Codes:
    """A column by numbers: 0 for null, else from 1 on."""

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
