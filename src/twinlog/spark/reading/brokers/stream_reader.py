"""`spark.readStream.format("rocketmq")`: one long-lived object in the driver plans, copies of it in the workers read.

Spark pickles the reader for its workers, so it holds no socket. Spark calls `commit` one batch late and may not call
`stop`, so nothing depends on them. The two offsets of a batch decide what it reads: a replay gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from twinlog.base.clock import monotonic_ms
from twinlog.client.errors import BrokerRefused, ClientError
from twinlog.net.errors import NetError
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption, SparkSourceError, errors_without_traceback
from twinlog.spark.offsets import Offsets, decode_offsets, encode_offsets, where
from twinlog.spark.reading.brokers.filter_check import check_filter
from twinlog.spark.reading.brokers.group_topic import show_group
from twinlog.spark.reading.brokers.initial_offsets import initial_offsets_file
from twinlog.spark.reading.brokers.options import PositionKind, ReadOptions
from twinlog.spark.reading.brokers.positions import find_queues, find_queues_present, starting_offsets
from twinlog.spark.reading.brokers.queue_ends import QueueEnds
from twinlog.spark.reading.brokers.queue_ranges import cap_offsets, plan_queue_ranges, rows_between, split_ranges
from twinlog.spark.reading.brokers.queue_rows import read_queue
from twinlog.spark.reading.data_loss import report_loss
from twinlog.spark.schema import Columns
from twinlog.telemetry.log import get_logger
from twinlog.wire.bodies import MessageQueue
from twinlog.wire.codes import ResponseCode

log = get_logger(__name__)


@errors_without_traceback
class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues; the offset is the next message of each."""

    def __init__(
        self,
        options: ReadOptions,
        columns: Columns,
        default_checkpoints: str | None = None,
        s3a: Mapping[str, str] | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._cluster = Cluster(options.cluster, options.read_from)
        self._waiting = Cluster(options.cluster, options.read_from, waits=True)
        self._ends = QueueEnds(options, self._cluster)
        self._initial_file = initial_offsets_file(options, default_checkpoints, s3a)
        self._initial: dict[str, int] | None = None
        self.position_is_kept = False  # by the caller: a first batch that fails is planned anew, and loses nothing
        self._target: Offsets | None = None
        self._trigger_ms: float | None = None  # when the last batch with rows was planned
        self._published: Offsets = {}
        self._filtered: set[MessageQueue] = set()  # queues whose broker has accepted the filter

    # -- planning, in the driver -------------------------------------------------------------------

    def initialOffset(self) -> dict:
        """Where a new query starts: the same answer however often Spark asks, in this run and in a replay."""
        if self._initial is None:
            saved = None if self._initial_file is None else self._initial_file.load()
            self._initial = saved if saved is not None else self._new_initial_offsets()
        return dict(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.trigger_rows_max is not None:
            return ReadMaxRows(options.trigger_rows_max)
        return ReadAllAvailable() if options.trigger_rows_min is None else ReadMinRows(options.trigger_rows_min)

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """Where the next batch ends; equal to `start` when there is nothing to do."""
        position = decode_offsets(start)
        self._check_filter(position)
        self._publish(position)
        latest = self._latest(position)
        if not isinstance(limit, ReadAllAvailable) and self._target is None and self._should_wait(position, latest):
            return encode_offsets(position)
        end = cap_offsets(position, latest, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if rows_between(position, end):
            self._trigger_ms = monotonic_ms()
        return encode_offsets(end)

    def reportLatestOffset(self) -> dict | None:
        """Shown in the query's progress, beside the offset it has reached: the difference is its lag."""
        try:
            return encode_offsets(self._cluster.max_offsets(find_queues(self._options, self._cluster)))
        except (NetError, ClientError, SparkSourceError) as error:
            log.warning("the newest offsets cannot be read", error=str(error))
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        # The query's position is not known here. A queue that is missing now may stand in the checkpoint.
        self._target = self._waiting.max_offsets(find_queues_present(self._options, self._waiting))

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        ends = decode_offsets(end)
        self._check_filter(ends)  # a replay is planned without latestOffset
        ranges = plan_queue_ranges(decode_offsets(start), ends, self._on_loss)
        parts = split_ranges(
            ranges, partitions_min=self._options.partitions_min, rows_max=self._options.partition_rows_max
        )
        return [InputPartition(part) for part in parts]

    def commit(self, end: dict) -> None:
        self._publish(decode_offsets(end))

    def stop(self) -> None:
        """Nothing to do: Spark does not call it reliably."""

    # -- reading, in the workers -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_queue(self._options, self._columns, partition.value)

    # -- parts of planning -------------------------------------------------------------------------

    def _new_initial_offsets(self) -> dict[str, int]:
        queues = find_queues(self._options, self._waiting)
        initial = encode_offsets(starting_offsets(self._options, self._waiting, queues))
        if self._initial_file is not None:
            self._initial_file.save(initial)
        elif self._options.starting.kind is not PositionKind.OFFSETS and not self.position_is_kept:
            log.warning(
                "the starting offsets of this stream are not saved: if its first batch fails and is replayed, "
                "messages that arrived in between may be lost; set initialOffsetsLocation",
                starting=self._options.starting.kind.value,
            )
        return initial

    def _check_filter(self, queues: Iterable[MessageQueue]) -> None:
        """Before a queue's first batch: a broker that does not understand the filter gives all rows."""
        new = set(queues) - self._filtered
        if new:
            check_filter(self._options, self._waiting, new)
            self._filtered |= new

    def _latest(self, position: Offsets) -> Offsets:
        """The newest offsets; a new queue is added at its oldest message, and read by the next batch."""
        if self._target is not None:
            self._check_target(self._target, position)
            # A target before the position may come from a replica that is behind.
            unsure = {queue: at for queue, at in position.items() if self._target.get(queue, -1) < at}
            self._target |= self._ends.wait_for(unsure)
            latest = {queue: self._target[queue] for queue in position}
            new = sorted(set(self._target) - set(position))
        else:
            latest, new = self._ends.read(position)
        back = [queue for queue, at in position.items() if latest[queue] < at]
        for queue in back:
            what = f"the stream was at {position[queue]}, the queue now ends at {latest[queue]}: is it a new topic?"
            self._on_loss(where(queue), what)
        # The end of this batch holds a new queue at its first offset. The next batch starts there, and a replay needs
        # only the two offsets.
        begins = self._ends.begins([*new, *back])
        return {**latest, **{queue: position[queue] for queue in back}, **begins}

    def _check_target(self, target: Offsets, position: Offsets) -> None:
        """Raise for a queue that the options name and that is neither in the cluster nor in the checkpoint."""
        known = {*target, *position}
        has_all = set(self._options.topics) <= {queue.topic for queue in known} and known.issuperset(
            self._options.assigned
        )
        if self._options.fail_on_data_loss and not has_all:
            find_queues(self._options, self._waiting)

    def _should_wait(self, position: Offsets, latest: Offsets) -> bool:
        """Whether fewer rows than minOffsetsPerTrigger have arrived, and maxTriggerDelay is not over."""
        rows_min = self._options.trigger_rows_min
        if rows_min is None or rows_between(position, latest) >= rows_min:
            return False
        return self._trigger_ms is not None and monotonic_ms() - self._trigger_ms < self._options.trigger_delay_ms_max

    def _publish(self, position: Offsets) -> None:
        """Commit the query's position to its group. All before `position` is done when Spark plans the next batch."""
        group = self._options.consumer_group
        if not self._options.commits_to_group or group is None:
            return
        changed = {queue: at for queue, at in position.items() if self._published.get(queue) != at}
        if not changed:
            return
        cluster = Cluster(self._options.cluster)
        try:
            try:
                cluster.commit(group, changed)
            except BrokerRefused as error:
                if not _is_unknown_group(error) or self._published:
                    raise
                cluster.store_times(group, changed)  # a pull creates the group, if the broker allows that
                cluster.commit(group, changed)
        except (NetError, ClientError, SparkSourceError) as error:
            if _is_unknown_group(error) and not self._published:  # a wrong option: a warning would be overlooked
                raise BadOption(f"commitOffsetsToGroup: {error}") from error
            log.warning("a group's offsets were not published", group=group, error=str(error))
        else:
            if not self._published:
                show_group(self._options.cluster, group, changed)
            self._published.update(changed)

    def _on_loss(self, place: str, what: str) -> None:
        report_loss(self._options.fail_on_data_loss, place, what)


def _is_unknown_group(error: Exception) -> bool:
    return isinstance(error, BrokerRefused) and error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
