"""Stamps: the same row of the same write gets the same unique key, however often it is written.

A row is identified by (write, batch, partition, sequence): the write is a streaming query's id or the user's `writeId`,
and the sequence counts the rows of one topic in one partition. Its stamp is the message's unique key, by which brokers
index messages. It has the form of RocketMQ's own unique keys, 32 hexadecimal digits:

    | hash of all but the low 16 bits of the sequence: 20 | milliseconds of the month: 8 | low bits of the sequence: 4 |

Tools read the middle part as the time of sending. It is 0 in a stamp that must be the same in each attempt.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from twinlog.spark.writing.arrow_text import fixed_binary, join

STAMP_PROPERTY = "SPARK_STAMP"  # write/batch/partition/sequence, for people and for consumers that compare
LAYOUT_PROPERTY = "SPARK_LAYOUT"  # the queues that the rows of this write were spread over: broker-a:4;broker-b:4
_KEY_BYTES = 32
_HEX = np.frombuffer(b"".join(b"%04X" % n for n in range(1 << 16)), np.uint8).reshape(1 << 16, 4)


@dataclass(frozen=True, slots=True)
class Stamps:
    """The stamps of one task."""

    write_id: str
    batch_id: int
    partition_id: int

    def keys(self, topic: str, sequences: np.ndarray, month_ms: int = 0) -> pa.Array:
        """The unique key of each row."""
        rows = np.empty((len(sequences), _KEY_BYTES), np.uint8)
        pages = sequences >> 16
        for page in np.unique(pages).tolist():
            head = np.frombuffer(self._head(topic, page) + b"%08X" % (month_ms & 0xFFFFFFFF), np.uint8)
            rows[pages == page, :28] = head
        rows[:, 28:] = _HEX[sequences & 0xFFFF]
        return fixed_binary(rows)

    def key(self, topic: str, sequence: int) -> str:
        return (self._head(topic, sequence >> 16) + b"%08X%04X" % (0, sequence & 0xFFFF)).decode()

    def text(self, sequence: int) -> str:
        return f"{self.write_id}/{self.batch_id}/{self.partition_id}/{sequence}"

    def texts(self, sequences: np.ndarray) -> pa.Array:
        """`text` of each row."""
        digits = pa.array(sequences, pa.int64()).cast(pa.string()).cast(pa.binary())
        prefix = pa.scalar(self.text(0)[:-1].encode(), pa.binary())
        return join(prefix, digits)

    def _head(self, topic: str, page: int) -> bytes:
        identity = "\n".join((self.write_id, str(self.batch_id), str(self.partition_id), topic, str(page)))
        return hashlib.blake2b(identity.encode(), digest_size=10).hexdigest().upper().encode()
