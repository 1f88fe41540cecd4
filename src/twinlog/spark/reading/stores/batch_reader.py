"""`spark.read.format("rocketmq_store")`: messages by byte ranges of the log, and the small tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.spark.errors import errors_without_traceback
from twinlog.spark.reading.data_loss import report_loss
from twinlog.spark.reading.decode import Decoder
from twinlog.spark.reading.stores.log_ranges import SegmentFile, StoreRange, list_segments, log_end, plan_log_ranges
from twinlog.spark.reading.stores.options import StoreOptions
from twinlog.spark.reading.stores.range_read import read_range
from twinlog.spark.reading.stores.tables import TablePart, plan_table, read_table
from twinlog.spark.schema import Columns


@errors_without_traceback
class StoreBatchReader(DataSourceReader):
    """Messages of stores, by byte ranges of their commit logs; without `pushFilters`, see QueueBatchReader."""

    def __init__(self, options: StoreOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        wanted = self._options.selection
        found: list[StoreRange] = []
        for store in self._options.stores:
            name = store.broker_name
            if not wanted.wants_store(name):
                continue
            segments = list_segments(store.commit_log_dirs, store.root)
            self._check_places(str(store.root), segments, wanted.begins.get(name, 0), wanted.ends.get(name, 0))
            found += plan_log_ranges(
                wanted.in_time(segments),
                self._options.split_bytes,
                store=str(store.root),
                broker_name=name,
                begin=wanted.begins.get(name, 0),
                end=wanted.ends.get(name),
            )
        return [InputPartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_messages(self._options, self._columns, partition.value)

    def _check_places(self, store: str, segments: list[SegmentFile], begin: int, end: int) -> None:
        """Report offsets that are asked for and not in the log; 0 means no limit."""
        fails, place = self._options.fail_on_data_loss, f"store {store}"
        if segments and 0 < begin < segments[0].base:
            report_loss(fails, place, f"the log begins at {segments[0].base}, startingOffsets is {begin}")
        if end > log_end(segments):
            report_loss(fails, place, f"the log ends at {log_end(segments)}, endingOffsets is {end}")


@errors_without_traceback
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


def read_messages(options: StoreOptions, columns: Columns, wanted: StoreRange) -> Iterator[pa.RecordBatch]:
    """The rows of one range that the options select."""
    decoder = Decoder(
        columns, broker_name=wanted.broker_name, segment=wanted.segment.path.name, inflates=options.inflates
    )
    selection, skips_damage = options.selection, not options.fail_on_data_loss
    for records in read_range(wanted, selection, check_crc=options.check_crc, skips_damage=skips_damage):
        yield from decoder.decode(selection.select(records, wanted.broker_name))
