"""Readers of stores: messages by byte ranges of the log, and the small tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from twinlog.spark.reading.decode import Decoder
from twinlog.spark.reading.filters import Limits, limits_of
from twinlog.spark.reading.store_options import StoreOptions
from twinlog.spark.reading.store_plan import SegmentFile, StoreRange, list_segments, plan_ranges
from twinlog.spark.reading.store_read import read_range
from twinlog.spark.reading.store_tables import TablePart, plan_table, read_table
from twinlog.spark.schema import Columns
from twinlog.store.scan import RecordBatch, scan


class StoreReader(DataSourceReader):
    """Messages of stores, by byte ranges of their commit logs."""

    def __init__(self, options: StoreOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._limits = Limits()

    def partitions(self) -> list[InputPartition]:
        found: list[StoreRange] = []
        for store in self._options.stores:
            if not self._limits.allows("brokerName", store.broker_name):
                continue
            segments = list_segments(store.commit_log_dirs, store.root)
            segments = [one for one in _in_time(segments, self._limits) if self._overlaps(one.base, one.base + one.end)]
            found += plan_ranges(
                segments, self._options.split_bytes, store=str(store.root), broker_name=store.broker_name
            )
        ranges = [one for one in found if self._overlaps(one.segment.base + one.begin, one.segment.base + one.end)]
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_messages(self._options, self._columns, partition.value, self._limits)

    def _overlaps(self, begin: int, end: int) -> bool:
        return self._limits.overlaps("commitLogOffset", begin, end - 1)


class FilteringStoreReader(StoreReader):
    """The same, taking filters; Spark fails a query whose reader has `pushFilters` while the push-down is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._limits = limits_of(filters)
        return filters


class TableReader(DataSourceReader):
    """One of the small tables."""

    def __init__(self, options: StoreOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in plan_table(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: TablePart | None = partition.value
        if part is not None:
            yield from read_table(self._options, part, self._columns)


def read_messages(
    options: StoreOptions, columns: Columns, wanted: StoreRange, limits: Limits
) -> Iterator[pa.RecordBatch]:
    """The rows of one range."""
    decoder = Decoder(
        columns, broker_name=wanted.broker_name, segment=wanted.segment.path.name, inflates=options.inflates
    )
    for records in read_range(wanted, check_crc=options.check_crc, skips_damage=not options.fail_on_data_loss):
        yield from decoder.decode(_limited(records, limits))


def _limited(records: RecordBatch, limits: Limits) -> RecordBatch:
    """The rows that may be wanted; those of other topics and queues never become columns."""
    if not limits.allowed:
        return records
    keep = np.ones(len(records), bool)
    if "topic" in limits.allowed:
        good = np.array([limits.allows("topic", topic) for topic in records.topics], bool)
        keep &= good[records.topic_number] if len(good) else False
    if "queueId" in limits.allowed:
        keep &= np.isin(records.queue_id, list(limits.allowed["queueId"]))
    return records if keep.all() else records.select(keep)


def _in_time(segments: list[SegmentFile], limits: Limits) -> list[SegmentFile]:
    """The segments that may hold records of the wanted time; its first record tells when the one before ended."""
    if "storeTimestamp" not in limits.low and "storeTimestamp" not in limits.high:
        return segments
    begins = [_begin_ms(one) for one in segments]
    ends = [*begins[1:], None]
    overlaps = limits.overlaps
    return [
        one
        for one, low, high in zip(segments, begins, ends, strict=True)
        if overlaps("storeTimestamp", 0 if low is None else low, 1 << 62 if high is None else high)
    ]


def _begin_ms(file: SegmentFile) -> int | None:
    """The time of a segment's first record; None when that is damaged, and nobody knows."""
    segment = file.open()
    try:
        batch = next(scan(segment.map, 0, file.end, file.base, check_crc=False, batch_records=1))
        return int(batch.store_timestamp[0]) if len(batch) else None
    finally:
        segment.close()
