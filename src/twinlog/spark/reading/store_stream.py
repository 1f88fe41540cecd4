"""A store as a stream: the log of a live or growing directory, from one look at its end to the next.

The offset of a stream is the log end of each store, `{"/data/broker-a/store": 1073741824}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from twinlog.spark.errors import DataLoss
from twinlog.spark.reading.filters import Limits
from twinlog.spark.reading.store_options import StoreDirectory, StoreOptions
from twinlog.spark.reading.store_plan import SegmentFile, StoreRange, list_segments
from twinlog.spark.reading.store_reader import read_messages
from twinlog.spark.schema import Columns
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs of some stores."""

    def __init__(self, options: StoreOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict:
        if self._options.starts_at_end:
            log.warning("a store stream from latest keeps no starting point: a replayed first batch may lose records")
            return self._ends()
        return {str(store.root): _start(store) for store in self._sorted_stores()}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.trigger_bytes_max
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        ends = self._ends() if self._target is None else dict(self._target)
        for store in self._sorted_stores():  # a store that is new begins where its log does
            start.setdefault(str(store.root), _start(store))
        if not isinstance(limit, ReadMaxBytes):
            return {name: max(end, start[name]) for name, end in ends.items()}
        return cap_bytes(start, ends, limit.max_bytes)

    def reportLatestOffset(self) -> dict:
        return self._ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        parts = []
        for store in self._sorted_stores():
            name = str(store.root)
            parts += self._plan(store, start.get(name, 0), end.get(name, 0))
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_messages(self._options, self._columns, partition.value, Limits())

    def commit(self, end: dict) -> None:
        """Nothing to do: the checkpoint holds all there is to know."""

    def stop(self) -> None:
        """Nothing to do: Spark does not call it reliably."""

    def _plan(self, store: StoreDirectory, begin: int, end: int) -> list[StoreRange]:
        if begin > end:
            raise DataLoss(f"store {store.root}", f"the stream was at {begin}, its log now ends at {end}")
        parts = []
        segments = list_segments(store.commit_log_dirs, store.root)
        if segments and begin < segments[0].base and begin < end:
            problem = f"the log begins at {segments[0].base}, the stream was at {begin}"
            if self._options.fail_on_data_loss:
                raise DataLoss(f"store {store.root}", problem)
            log.warning("records are gone and are left out", store=str(store.root), problem=problem)
        for segment in segments:
            first, last = max(begin - segment.base, 0), min(end - segment.base, segment.end)
            for at in range(first, last, self._options.split_bytes):
                until = min(at + self._options.split_bytes, last)
                parts.append(StoreRange(str(store.root), store.broker_name, _until(segment, last), at, until))
        return parts

    def _ends(self) -> dict[str, int]:
        return {str(store.root): _end(store) for store in self._sorted_stores()}

    def _sorted_stores(self) -> list[StoreDirectory]:
        return sorted(self._options.stores, key=lambda store: str(store.root))


def cap_bytes(start: dict[str, int], ends: dict[str, int], bytes_max: int) -> dict[str, int]:
    """`ends`, drawn back so that about `bytes_max` bytes lie between them and `start`."""
    backlog = {name: max(end - start[name], 0) for name, end in ends.items()}
    total = sum(backlog.values())
    if total <= bytes_max:
        return {name: max(end, start[name]) for name, end in ends.items()}
    return {name: start[name] + max(backlog[name] * bytes_max // total, min(backlog[name], 1)) for name in ends}


def _until(segment: SegmentFile, end: int) -> SegmentFile:
    # A record that starts before the end is read whole, and may end behind it.
    return segment if end < segment.end else SegmentFile(segment.path, segment.base, segment.size, end)


def _end(store: StoreDirectory) -> int:
    segments = list_segments(store.commit_log_dirs, store.root)
    return segments[-1].base + segments[-1].end if segments else 0


def _start(store: StoreDirectory) -> int:
    segments = list_segments(store.commit_log_dirs, store.root)
    return segments[0].base if segments else 0
