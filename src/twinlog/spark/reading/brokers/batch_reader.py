"""`spark.read.format("rocketmq")`: offsets are fixed when the query is planned, and each task reads its share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import errors_without_traceback
from twinlog.spark.reading.brokers.filter_check import check_filter
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.positions import ending_offsets, find_queues, starting_offsets
from twinlog.spark.reading.brokers.queue_ranges import plan_queue_ranges, split_ranges
from twinlog.spark.reading.data_loss import report_loss
from twinlog.spark.schema import Columns

if TYPE_CHECKING:
    import pyarrow as pa


@errors_without_traceback
class QueueBatchReader(DataSourceReader):
    """Reads queues once, from start to end.

    It has no `pushFilters`: Spark 4.2 keeps the plan of a filtered read with the DataFrame and uses it for the
    DataFrame's other queries too, which then lack the rows that the filter removed. Options select rows instead.
    """

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = Cluster(options.cluster, options.read_from, waits=True)
        queues = find_queues(options, cluster)
        if not queues:
            return []
        check_filter(options, cluster, queues)
        start, end = starting_offsets(options, cluster, queues), ending_offsets(options, cluster, queues)
        ranges = plan_queue_ranges(start, end, lambda place, what: report_loss(options.fail_on_data_loss, place, what))
        parts = split_ranges(ranges, partitions_min=options.partitions_min, rows_max=options.partition_rows_max)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from twinlog.spark.reading.brokers.queue_rows import read_queue  # not in the process that plans

        if partition.value is not None:  # Spark passes None for a plan without partitions
            yield from read_queue(self._options, self._columns, partition.value)
