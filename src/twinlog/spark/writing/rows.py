"""Rows of an Arrow batch as the bodies of send requests.

What it trades: `wire.batch.encode_batch` is the definition of a batch's elements, one by one. Here heads, bodies and
properties of all rows are columns, joined by Arrow in one call; the bytes of its result are the elements back to back,
and a request is a slice of them. A property test holds both equal.

A delayed message, one larger than a batch, and one to a retry topic is sent alone: brokers do not accept it in a batch.
Compressed and plain bodies do not share a batch, since a batch has one system flag for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from twinlog.base.system_names import RETRY_PREFIX
from twinlog.client.errors import BadMessage
from twinlog.client.name_rules import check_topic
from twinlog.spark.errors import BadRow
from twinlog.spark.writing.arrow_text import fixed_binary, join, pc
from twinlog.spark.writing.columns import WRITE_COLUMNS, plain_column
from twinlog.spark.writing.options import WriteOptions
from twinlog.spark.writing.properties import RowNames, column_pairs, map_pairs
from twinlog.wire.compression import compress
from twinlog.wire.properties import PROPERTIES_BYTES_MAX

PIECE_BYTES = 16 * 1024 * 1024  # rows are encoded in pieces with at most about so many bytes of bodies
# A broker stores a batch in one go, and other producers wait meanwhile. Java's brokers (4.x) refuse a batch whose
# records exceed maxMessageSize, and a record has up to 300 bytes more than its element.
BATCH_ROWS_MAX = 2048
_HEAD = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">i4")])
_FRAME_BYTES = _HEAD.itemsize + 2


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one topic, their columns in plain types, and their names in errors."""

    topic: str
    columns: dict[str, pa.Array]
    rows: RowNames

    def take(self, order: np.ndarray) -> Piece:
        chosen = pa.array(order)
        columns = {name: column.take(chosen) for name, column in self.columns.items()}
        return Piece(self.topic, columns, RowNames(self.rows.partition_id, self.rows.numbers[order]))

    def __len__(self) -> int:
        return len(self.rows.numbers)


def pieces_of(batch: pa.RecordBatch, options: WriteOptions, first_row: int, partition_id: int) -> Iterator[Piece]:
    """The rows of a batch by topic, a few megabytes at a time; BadRow for one without body or topic."""
    columns = {name: found for name in WRITE_COLUMNS if (found := plain_column(batch, name)) is not None}
    rows = RowNames(partition_id, first_row + np.arange(len(batch)))
    if not len(batch):
        return
    if options.deliver_at_ms is not None:
        columns["deliverAt"] = _delivery_times(columns, options.deliver_at_ms, len(batch))
    sizes = _body_sizes(columns.get("body"), options, rows)
    total = int(sizes.sum())
    piece_bytes = -(-total // -(-total // PIECE_BYTES))  # pieces of about the same size
    piece_of_row = (np.cumsum(sizes) - 1) // piece_bytes
    cuts = [0, *(np.flatnonzero(np.diff(piece_of_row)) + 1).tolist(), len(batch)]
    for begin, end in pairwise(cuts):
        part = {name: column.slice(begin, end - begin) for name, column in columns.items()}
        yield from _by_topic(part, options.topic, RowNames(partition_id, rows.numbers[begin:end]))


def _delivery_times(columns: dict[str, pa.Array], time_ms: int, count: int) -> pa.Array:
    """The times of a batch with the option deliverAt; a row with a time or a delay of its own keeps that."""
    own = columns.get("deliverAt")
    times = pa.array([time_ms] * count, pa.int64()) if own is None else own.fill_null(time_ms)
    delays = pa.array(_integers(columns.get("delayLevel"), count) > 0)
    kept = pa.nulls(count, pa.int64()) if own is None else own
    return pc.if_else(delays, kept, times)


def _body_sizes(bodies: pa.Array | None, options: WriteOptions, rows: RowNames) -> np.ndarray:
    if bodies is None or bodies.null_count:
        row = 0 if bodies is None else pc.index(bodies.is_null(), True).as_py()
        raise BadRow(f"{rows[row]}: body is null; a message needs one, filter out such rows")
    sizes = pc.binary_length(bodies).to_numpy()
    if not sizes.all():
        raise BadRow(
            f"{rows[int(np.argmin(sizes))]}: body is empty; RocketMQ does not store a message with an empty body"
        )
    if int(sizes.max()) > options.message_bytes_max:
        row = int(np.argmax(sizes))
        limit = f"the limit is {options.message_bytes_max}"
        raise BadRow(f"{rows[row]}: body has {int(sizes[row])} bytes, {limit} (maxMessageBytes, and the broker's own)")
    return sizes


def _by_topic(columns: dict[str, pa.Array], topic: str | None, rows: RowNames) -> Iterator[Piece]:
    topics = columns.pop("topic", None)
    if topic is not None:  # the option overrides the column
        yield Piece(topic, columns, rows)
        return
    if topics is None or topics.null_count:
        row = 0 if topics is None else pc.index(topics.is_null(), True).as_py()
        raise BadRow(f"{rows[row]}: topic is null; name one for each row, or give option topic")
    encoded = topics.dictionary_encode()
    numbers = encoded.indices.to_numpy()
    whole = Piece("", columns, rows)
    for number, name in enumerate(encoded.dictionary.to_pylist()):
        members = np.flatnonzero(numbers == number)
        try:
            check_topic(name)
        except BadMessage as error:
            raise BadRow(f"{rows[int(members[0])]}: {error}") from error
        chosen = whole if len(members) == len(numbers) else whole.take(members)
        yield Piece(name, chosen.columns, chosen.rows)


class EncodedRows:
    """The rows of a piece as they are sent, in the order of the piece."""

    def __init__(self, piece: Piece, sequences: np.ndarray, pairs: list[pa.Array], options: WriteOptions) -> None:
        """`sequences` are the rows' numbers in their stamps; `pairs` are further properties, each a column of texts."""
        columns, count = piece.columns, len(piece)
        self.piece, self.sequences = piece, sequences
        self.plain_bodies = columns["body"]
        self.bodies, self.sys_flags = _compressed(self.plain_bodies, options)
        parts = column_pairs(columns, piece.rows)
        if "properties" in columns:
            parts.append(map_pairs(columns["properties"], piece.rows, drops_reserved=options.drops_reserved))
        self.properties = join(*parts, *pairs)
        lengths = pc.binary_length(self.properties).to_numpy()
        if int(lengths.max()) > PROPERTIES_BYTES_MAX:
            row = int(np.argmax(lengths))
            size = f"{int(lengths[row])} bytes of properties, the limit is {PROPERTIES_BYTES_MAX}"
            raise BadRow(f"{piece.rows[row]}: {size}; tags, keys and the properties that Spark adds count too")
        self.flags = _integers(columns.get("flag"), count)
        self.delays = _integers(columns.get("delayLevel"), count) > 0
        times = columns.get("deliverAt")
        self.timers = np.zeros(count, bool) if times is None else times.is_valid().to_numpy(zero_copy_only=False)
        if (self.delays & self.timers).any():
            row = int(np.argmax(self.delays & self.timers))
            raise BadRow(f"{piece.rows[row]}: it has a delayLevel and a deliverAt; give one of them")
        self._join_elements(pc.binary_length(self.bodies).to_numpy(), lengths)
        large = np.diff(self.offsets) > options.batch_bytes
        self.alone = self.delays | self.timers | large | piece.topic.startswith(RETRY_PREFIX)
        self._batch_bytes = options.batch_bytes

    def _join_elements(self, body_lengths: np.ndarray, lengths: np.ndarray) -> None:
        heads = np.zeros(len(lengths), _HEAD)
        heads["size"] = _FRAME_BYTES + body_lengths + lengths
        heads["flag"], heads["body"] = self.flags, body_lengths
        shorts = lengths.astype(">i2").view(np.uint8).reshape(-1, 2)
        packed = fixed_binary(heads.view(np.uint8).reshape(-1, _HEAD.itemsize))
        elements = join(packed, self.bodies, fixed_binary(shorts), self.properties)
        _, offsets, data = elements.buffers()
        self.offsets = np.frombuffer(offsets, np.int32, len(elements) + 1, elements.offset * 4).astype(np.int64)
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def batch_body(self, begin: int, end: int) -> memoryview:
        """The elements of these rows."""
        return self._data[int(self.offsets[begin]) : int(self.offsets[end])]

    def requests(self, begin: int, end: int, batch_bytes: int | None = None) -> Iterator[tuple[int, int, bool]]:
        """Rows `begin` to `end`, all of one queue, split into requests: (begin, end, whether it is a batch).

        The batches that follow one another have about the same size, at most `batch_bytes`, or that of the options.
        """
        batch_bytes = batch_bytes or self._batch_bytes
        kinds = np.where(self.alone[begin:end], -1, self.sys_flags[begin:end])
        cuts = [begin, *(begin + 1 + np.flatnonzero(np.diff(kinds))).tolist(), end]
        offsets = self.offsets
        for low, high in pairwise(cuts):
            total = int(offsets[high] - offsets[low])
            wanted = -(-total // max(1, -(-total // batch_bytes)))
            while low < high:
                if self.alone[low]:
                    yield low, low + 1, False
                    low += 1
                    continue
                first = int(offsets[low])
                until = int(np.searchsorted(offsets, first + wanted))
                limit = int(np.searchsorted(offsets, first + batch_bytes, "right")) - 1
                until = min(until, max(limit, low + 1), low + BATCH_ROWS_MAX, high)
                yield low, until, True
                low = until


def _compressed(bodies: pa.Array, options: WriteOptions) -> tuple[pa.Array, np.ndarray]:
    """Bodies as they are sent, and their system flags."""
    flags = np.zeros(len(bodies), np.int32)
    if options.compress_over_bytes is None:
        return bodies, flags
    large = np.flatnonzero(pc.binary_length(bodies).to_numpy() > options.compress_over_bytes)
    if not len(large):
        return bodies, flags
    packed = bodies.to_pylist()
    for row in large.tolist():
        smaller, bits = compress(packed[row], options.compression)
        if len(smaller) < len(packed[row]):
            packed[row], flags[row] = smaller, bits
    return pa.array(packed, pa.binary()), flags


def _integers(column: pa.Array | None, count: int) -> np.ndarray:
    return np.zeros(count, np.int32) if column is None else column.fill_null(0).to_numpy()
