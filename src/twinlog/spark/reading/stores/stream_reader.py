"""`spark.readStream.format("rocketmq_store")`: the growing logs of store directories.

The offset of a stream is the log end of each store, `{"/data/broker-a/store": 1073741824}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from twinlog.spark.errors import errors_without_traceback
from twinlog.spark.reading.data_loss import report_loss
from twinlog.spark.reading.stores.batch_reader import read_messages
from twinlog.spark.reading.stores.log_ranges import SegmentFile, StoreRange, list_segments, log_end, record_start
from twinlog.spark.reading.stores.options import StoreDirectory, StoreOptions
from twinlog.spark.schema import Columns
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


@errors_without_traceback
class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows logs; each batch reads from the last end to the current one."""

    def __init__(self, options: StoreOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict:
        if self._options.starts_at_end:
            log.warning(
                "a store stream from latest does not save where it starts: a replayed first batch may lose records"
            )
            return self._ends()
        return {name: self._first(log) for name, log in self._logs().items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.trigger_bytes_max
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """Where the next batch ends: at the start of a record in each log, so that anything else there is damage."""
        logs = self._logs()
        ends = {name: log_end(log) for name, log in logs.items()} if self._target is None else dict(self._target)
        known = {name: end for name, end in ends.items() if name in start}
        for name in [name for name, end in known.items() if end < start[name]]:
            self._report_loss(name, f"the stream was at {start[name]}, the log now ends at {known[name]}")
            start = {**start, name: known[name]}
        if isinstance(limit, ReadMaxBytes):
            capped = cap_bytes(start, known, limit.max_bytes)
            known = {name: end if end == known[name] else record_start(logs[name], end) for name, end in capped.items()}
        # The end of this batch holds a new store at its start: the next batch begins there, also in a replay.
        new = {name: log[0].base if log else 0 for name, log in logs.items() if name not in start}
        return dict(sorted({**known, **new, **self._gone(start)}.items()))

    def reportLatestOffset(self) -> dict:
        return self._ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        self._gone({name: at for name, at in end.items() if start.get(name, at) != at})
        parts = []
        for store in self._sorted_stores():
            name = str(store.root)
            if name in end:
                parts += self._plan(store, start.get(name, end[name]), end[name])
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_messages(self._options, self._columns, partition.value)

    def commit(self, end: dict) -> None:
        """Nothing to do: the checkpoint holds everything."""

    def stop(self) -> None:
        """Nothing to do: Spark does not call it reliably."""

    def _plan(self, store: StoreDirectory, begin: int, end: int) -> list[StoreRange]:
        name = str(store.root)
        if begin == end:
            return []
        if begin > end:
            self._report_loss(name, f"the stream was at {begin}, its log now ends at {end}")
            return []
        parts = []
        segments = list_segments(store.commit_log_dirs, store.root)
        if segments and begin < segments[0].base:
            self._report_loss(name, f"the log begins at {segments[0].base}, the stream was at {begin}")
        if log_end(segments) < end:
            self._report_loss(name, f"the batch ends at {end}, the log now at {log_end(segments)}")
        for segment in segments:
            first, last = max(begin - segment.base, 0), min(end - segment.base, segment.end)
            for at in range(first, last, self._options.split_bytes):
                until = min(at + self._options.split_bytes, last)
                parts.append(StoreRange(name, store.broker_name, segment, at, until, begins_record=at == first))
        return parts

    def _gone(self, places: dict[str, int]) -> dict[str, int]:
        """Those of `places` whose store is no longer among the options; they are kept, since it may come back."""
        stores = {str(store.root) for store in self._options.stores}
        gone = {name: at for name, at in places.items() if name not in stores}
        for name in sorted(gone):
            self._report_loss(name, f"it is no longer among the stores, the stream was at {gone[name]}")
        return gone

    def _report_loss(self, name: str, what: str) -> None:
        report_loss(self._options.fail_on_data_loss, f"store {name}", what)

    def _first(self, log: list[SegmentFile]) -> int:
        """Where the stream begins in a log: at the oldest segment that may hold wanted records."""
        wanted = self._options.selection.in_time(log)
        return wanted[0].base if wanted else log_end(log)

    def _logs(self) -> dict[str, list[SegmentFile]]:
        return {str(store.root): list_segments(store.commit_log_dirs, store.root) for store in self._sorted_stores()}

    def _ends(self) -> dict[str, int]:
        return {name: log_end(log) for name, log in self._logs().items()}

    def _sorted_stores(self) -> list[StoreDirectory]:
        return sorted(self._options.stores, key=lambda store: str(store.root))


def cap_bytes(start: dict[str, int], ends: dict[str, int], bytes_max: int) -> dict[str, int]:
    """`ends`, moved back so that about `bytes_max` bytes lie between `start` and them."""
    backlog = {name: max(end - start[name], 0) for name, end in ends.items()}
    total = sum(backlog.values())
    if total <= bytes_max:
        return {name: max(end, start[name]) for name, end in ends.items()}
    return {name: start[name] + max(backlog[name] * bytes_max // total, min(backlog[name], 1)) for name in ends}
