"""`spark.read.format("rocketmq")`: offsets are fixed when the query is planned, and each task reads its share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from twinlog.spark.cluster import Cluster
from twinlog.spark.offsets import Offsets
from twinlog.spark.options import ReadOptions
from twinlog.spark.reading.fetch import read_queue, tell_loss
from twinlog.spark.reading.filters import Limits, limits_of
from twinlog.spark.reading.plan import QueueRange, plan_ranges, split_ranges
from twinlog.spark.reading.positions import ending_offsets, find_queues, starting_offsets
from twinlog.spark.schema import Columns
from twinlog.wire.bodies import MessageQueue


class QueueReader(DataSourceReader):
    """Reads queues once, from start to end."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._limits = Limits()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = Cluster(options.cluster, options.read_from)
        queues = [queue for queue in find_queues(options, cluster) if self._wants(queue)]
        if not queues:
            return []
        start, end = starting_offsets(options, cluster, queues), ending_offsets(options, cluster, queues)
        ranges = plan_ranges(start, end, lambda place, what: tell_loss(options.fail_on_data_loss, place, what))
        ranges = self._limited(cluster, ranges)
        parts = split_ranges(ranges, partitions_min=options.partitions_min, rows_max=options.partition_rows_max)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark's stand-in for a plan without partitions
            yield from read_queue(self._options, self._columns, partition.value)

    def _wants(self, queue: MessageQueue) -> bool:
        allows = self._limits.allows
        return (
            allows("topic", queue.topic)
            and allows("brokerName", queue.broker_name)
            and allows("queueId", queue.queue_id)
        )

    def _limited(self, cluster: Cluster, ranges: list[QueueRange]) -> list[QueueRange]:
        """The ranges without what filters on offset and time exclude; store times never fall within a queue.

        Brokers of 4.x answer with any message of the very time, or with the nearest: the margins allow for that.
        """
        limits = self._limits
        queues = [one.queue for one in ranges]
        low: Offsets = dict.fromkeys(queues, limits.low.get("queueOffset", 0))
        high: Offsets = dict.fromkeys(queues, limits.high.get("queueOffset", 1 << 62) + 1)
        if "storeTimestamp" in limits.low:
            found = cluster.offsets_at(dict.fromkeys(queues, max(limits.low["storeTimestamp"] - 1, 0)))
            low = {queue: max(low[queue], found[queue]) for queue in queues}
        if "storeTimestamp" in limits.high:
            found = cluster.offsets_at(dict.fromkeys(queues, max(limits.high["storeTimestamp"] + 1, 0)))
            high = {queue: min(high[queue], found[queue] + 1) for queue in queues}
        cut = [QueueRange(r.queue, max(r.start, low[r.queue]), min(r.end, high[r.queue])) for r in ranges]
        return [one for one in cut if one.start < one.end]


class FilteringQueueReader(QueueReader):
    """The same, taking filters; Spark fails a query whose reader has `pushFilters` while the push-down is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._limits = limits_of(filters)
        return filters
