"""The rows of one range of a queue: exactly its messages, each once and in order, or an error that says where."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from twinlog.base.system_calls import keep_freed_memory
from twinlog.client.consuming.pulling import TAG
from twinlog.spark.errors import BadRecord
from twinlog.spark.offsets import where
from twinlog.spark.reading.brokers.fetch import QueueFetch
from twinlog.spark.reading.brokers.options import ReadOptions
from twinlog.spark.reading.brokers.queue_ranges import QueueRange
from twinlog.spark.reading.data_loss import report_loss
from twinlog.spark.reading.decode import Decoder
from twinlog.spark.schema import Columns
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.scan import scan
from twinlog.store.scan.stop import StopReason
from twinlog.wire.values.filter_expression import parse_tags


def read_queue(options: ReadOptions, columns: Columns, wanted: QueueRange) -> Iterator[pa.RecordBatch]:
    """The rows of `wanted`."""
    keep_freed_memory()  # answers and columns of megabytes come and go all the time
    tags = parse_tags(options.expression) if options.expression_type == TAG else None  # SQL92 is the broker's alone
    decoder = Decoder(columns, broker_name=wanted.queue.broker_name, inflates=options.inflates, tags=tags)
    order = _OffsetCheck(wanted, dense=not options.is_filtered, fails=options.fail_on_data_loss)
    for chunk in QueueFetch(options, wanted).chunks():
        for records in scan(chunk, 0, len(chunk), 0, check_crc=options.checks_crc, check_offset=False):
            if records.stop is not None and records.stop.reason is not StopReason.END:
                reason = records.stop.reason.value
                hint = "check the broker's log with `twinlog store verify`, or choose offsets after it"
                raise BadRecord(
                    f"{where(wanted.queue, order.next)}: the broker sent a damaged record: {reason}; {hint}"
                )
            yield from decoder.decode(order.checked(decoder.unwrap(records)))
    order.finish()


class _OffsetCheck:
    """Checks that every message of the range arrives once."""

    def __init__(self, wanted: QueueRange, *, dense: bool, fails: bool) -> None:
        self._wanted = wanted
        self._dense = dense
        self._fails = fails
        self.next = wanted.start

    def checked(self, records: ScannedRecords) -> ScannedRecords:
        """The records that belong to the range and were not seen before."""
        offsets = records.queue_offset
        if not len(offsets):
            return records
        count = len(offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        if first == self.next and last == first + count - 1 and last < self._wanted.end and _ascends(offsets):
            self.next = last + 1
            return records
        keep = (offsets >= self.next) & (offsets < self._wanted.end)
        keep[1:] &= offsets[1:] > _running_max(offsets)[:-1]
        for offset in offsets[keep].tolist() if self._dense else ():
            if offset != self.next:
                self._lost(self.next, offset)
            self.next = offset + 1
        if not self._dense and keep.any():
            self.next = int(offsets[keep][-1]) + 1
        return records.select(keep)

    def finish(self) -> None:
        if self._dense and self.next < self._wanted.end:
            self._lost(self.next, self._wanted.end)

    def _lost(self, begin: int, end: int) -> None:
        report_loss(self._fails, where(self._wanted.queue, begin), f"the messages before offset {end} are missing")


def _ascends(offsets: np.ndarray) -> bool:
    return bool((offsets[1:] - offsets[:-1] == 1).all())


def _running_max(offsets: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(offsets)
