"""`spark.read.format("rocketmq")`: offsets are fixed when the query is planned, and each task reads its share."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.spark.cluster import Cluster
from twinlog.spark.reading.brokers.fetch import read_queue, tell_loss
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.positions import ending_offsets, find_queues, starting_offsets
from twinlog.spark.reading.brokers.queue_ranges import plan_ranges, split_ranges
from twinlog.spark.schema import Columns


class QueueReader(DataSourceReader):
    """Reads queues once, from start to end.

    It has no `pushFilters`: Spark 4.2 keeps the plan of a filtered read with the DataFrame, and reads its other queries
    by that plan, without the rows that the filter left out. Options choose what is read instead.
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
        start, end = starting_offsets(options, cluster, queues), ending_offsets(options, cluster, queues)
        ranges = plan_ranges(start, end, lambda place, what: tell_loss(options.fail_on_data_loss, place, what))
        parts = split_ranges(ranges, partitions_min=options.partitions_min, rows_max=options.partition_rows_max)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark's stand-in for a plan without partitions
            yield from read_queue(self._options, self._columns, partition.value)
