"""All queues of a store, by topic and queue id, and the dispatcher that fills them.

A queue without new units is a few numbers: no open file, no buffer. 100,000 of them load in seconds and take
about as much memory as their names.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from twinlog.base.safe_files import refuse_foreign_link
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.errors import QueueTypeMismatch
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.file_pool import FilePool
from twinlog.store.log.batch_requests import BatchRequests
from twinlog.store.queues.batch_consume_queue import BatchConsumeQueue
from twinlog.store.queues.consume_queue import ConsumeQueue, pack_unit, pack_units
from twinlog.store.queues.consume_queue_ext import ConsumeQueueExt
from twinlog.store.scan.column_batch import ColumnBatch, Columns, QueueRun
from twinlog.telemetry.log import get_logger
from twinlog.wire.values.sys_flag import TRANSACTION_HIDDEN

log = get_logger(__name__)

TAIL_BYTES_MAX = 64 * 1024
# Writing a tail costs about 15 microseconds, however long it is. So those of many queues wait until they are longer.
FEW_QUEUES = 1024
UNITS_PER_WRITE = 32
TAIL_UNITS_MAX = 4_000_000  # of all queues together: 80 MB

Queue = ConsumeQueue | BatchConsumeQueue


class QueueTable:
    """The consume queues; a dispatcher.

    `written_end` and `written_timestamp` belong to the newest record such that it and all before it are in
    files, `flushed_end` and `flushed_timestamp` to the one up to which the files are durable. Recovery after
    a crash has to dispatch the log again from there.
    """

    def __init__(
        self,
        root: Path,
        *,
        queue_file_bytes: int = 6_000_000,
        batch_file_bytes: int = 13_800_000,
        ext_file_bytes: int = 50_331_648,
        ext_enabled: bool = False,
        topic_kind: Callable[[str], str] = lambda topic: "SimpleCQ",
        ops: FileOps = FILE_OPS,
    ) -> None:
        self.files = FilePool(ops)
        self.written_end = self.flushed_end = 0
        self.written_timestamp = self.flushed_timestamp = 0
        self._root = str(root)
        self._queue_file_bytes = queue_file_bytes
        self._batch_file_bytes = batch_file_bytes
        self._ext_file_bytes = ext_file_bytes
        self._ext_enabled = ext_enabled
        self._topic_kind = topic_kind
        self._topics: dict[str, dict[int, Queue]] = {}
        self._dirty: list[Queue] = []
        self._tail_units = 0  # about how many units the tails have
        self._flushing = threading.RLock()
        self._taken_end = self._taken_timestamp = 0

    def load(self, *, clean: bool) -> None:
        """Find every queue on disk and its ends; `clean` trusts all but the last file of each."""
        for kind, base in (("SimpleCQ", "consumequeue"), ("BatchCQ", "batchconsumequeue")):
            for topic, queue_id in _queue_directories(f"{self._root}/{base}"):
                if self._topic_kind(topic) != kind:
                    raise QueueTypeMismatch(topic, found=kind, expected=self._topic_kind(topic))
                queue = self._create(topic, queue_id)
                queue.recover(thorough=not clean)

    @property
    def end_physical(self) -> int:
        """Where the newest record in any queue ends."""
        return max((queue.end_physical for queue in self.queues()), default=0)

    def dispatch(self, batch: Sequence[DispatchRequest]) -> None:
        """Add the records to their queues, in memory; only overlong tails are written."""
        if not batch:
            return
        if type(batch) is BatchRequests:
            run = batch.topic, batch.queue_id, 0, len(batch), batch.queue_offset
            units = pack_units(batch.offsets, batch.sizes, batch.tags_codes)
            self._dispatch_runs(batch, (run,), units, batch.offsets, batch.sizes, batch.store_timestamp)
            return
        if type(batch) is ColumnBatch and batch.columns is not None:
            self._dispatch_columns(batch, batch.columns)
            return
        topics, long_tails = self._topics, []
        with self.files.lock:
            dirty = self._dirty
            for request in batch:
                if request.sys_flag & TRANSACTION_HIDDEN:
                    continue
                try:
                    queue = topics[request.topic][request.queue_id]
                except KeyError:
                    queue = self._create(request.topic, request.queue_id)
                tail = queue.tail
                was_empty = not tail
                physical_offset = request.physical_offset
                if queue.is_plain and request.queue_offset == queue.end and physical_offset >= queue.end_physical:
                    # the usual case of ConsumeQueue.put, without the call
                    size = request.size
                    tail += pack_unit(physical_offset, size, request.tags_code)
                    queue.end += 1
                    queue.end_physical = physical_offset + size
                else:
                    queue.put(request)
                if was_empty and tail:
                    dirty.append(queue)
                if len(tail) >= TAIL_BYTES_MAX:
                    long_tails.append(queue)
            self._tail_units += len(batch)
            self._taken_end = batch[-1].physical_offset + batch[-1].size
            self._taken_timestamp = batch[-1].store_timestamp
        self._write_some(long_tails)

    def _dispatch_columns(self, batch: ColumnBatch, columns: Columns) -> None:
        """The same for columns: each queue gets its units in one piece."""
        records, long_tails = batch.records, []
        units = np.empty(len(batch), ConsumeQueue.UNIT_TYPE)
        units["physical_offset"], units["size"] = records.physical_offset, records.size
        units["tags_code"] = columns.tags_code
        if batch.runs is not None:
            begins, sizes = records.physical_offset.tolist(), records.size.tolist()
            timestamp = int(records.store_timestamp[-1])
            self._dispatch_runs(batch, batch.runs, units.tobytes(), begins, sizes, timestamp)
            return
        keys = records.topic_number.astype(np.int64) << 32 | records.queue_id
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
        with self.files.lock:
            for rows in np.split(order, starts[1:]):
                first, last = int(rows[0]), int(rows[-1])
                topic, queue_id = records.topics[int(records.topic_number[first])], int(records.queue_id[first])
                queue = self._topics.get(topic, {}).get(queue_id) or self._create(topic, queue_id)
                tail, offsets = queue.tail, records.queue_offset[rows]
                was_empty = not tail
                if (
                    queue.is_plain
                    and int(offsets[0]) == queue.end
                    and int(records.physical_offset[first]) >= queue.end_physical
                    and bool((np.diff(offsets) == 1).all())
                ):
                    tail += units[rows].tobytes()
                    queue.end += len(rows)
                    queue.end_physical = int(records.physical_offset[last] + records.size[last])
                else:
                    for row in rows.tolist():
                        queue.put(batch[row])
                if was_empty and tail:
                    self._dirty.append(queue)
                if len(tail) >= TAIL_BYTES_MAX:
                    long_tails.append(queue)
            self._tail_units += len(batch)
            self._taken_end = batch.end
            self._taken_timestamp = int(records.store_timestamp[-1])
        self._write_some(long_tails)

    def _dispatch_runs(
        self,
        batch: ColumnBatch | BatchRequests,
        runs: Sequence[QueueRun],
        units: bytes,
        begins: Sequence[int],
        sizes: Sequence[int],
        timestamp: int,
    ) -> None:
        """The same for records that follow one another in their queues."""
        long_tails = []
        with self.files.lock:
            for topic, queue_id, first, end, queue_offset in runs:
                queue = self._topics.get(topic, {}).get(queue_id) or self._create(topic, queue_id)
                tail = queue.tail
                was_empty = not tail
                if queue.is_plain and queue_offset == queue.end and begins[first] >= queue.end_physical:
                    tail += units[first * ConsumeQueue.UNIT_BYTES : end * ConsumeQueue.UNIT_BYTES]
                    queue.end += end - first
                    queue.end_physical = begins[end - 1] + sizes[end - 1]
                else:
                    for row in range(first, end):
                        queue.put(batch[row])
                if was_empty and tail:
                    self._dirty.append(queue)
                if len(tail) >= TAIL_BYTES_MAX:
                    long_tails.append(queue)
            self._tail_units += len(batch)
            self._taken_end = batch.end
            self._taken_timestamp = timestamp
        self._write_some(long_tails)

    @property
    def is_write_cheap(self) -> bool:
        """Whether the tails are few, or long enough that writing them costs little per message."""
        queues = len(self._dirty)
        return queues <= FEW_QUEUES or self._tail_units >= min(queues * UNITS_PER_WRITE, TAIL_UNITS_MAX)

    def _write_some(self, queues: list[Queue]) -> None:
        """Write these tails, unless another thread is writing: it may wait for the disk, and writes them soon."""
        if queues and self.files.writing.acquire(blocking=False):
            try:
                for queue in queues:
                    queue.write()
            finally:
                self.files.writing.release()

    def write_pending(self) -> None:
        """Write all tails to their files, so that they outlive the process."""
        with self._flushing:
            with self.files.lock:
                dirty, self._dirty = self._dirty, []
                units, self._tail_units = self._tail_units, 0
                end, timestamp = self._taken_end, self._taken_timestamp
            try:
                while dirty:
                    dirty[-1].write()
                    dirty.pop()
            except OSError:
                with self.files.lock:
                    self._dirty += dirty
                    self._tail_units += units
                raise
            self.written_end, self.written_timestamp = end, timestamp

    def flush(self) -> None:
        """Write all tails and make the files durable, so that they outlive the machine."""
        with self._flushing:
            self.write_pending()
            self.files.flush()
            self.flushed_end, self.flushed_timestamp = self.written_end, self.written_timestamp

    def get(self, topic: str, queue_id: int) -> Queue | None:
        queues = self._topics.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def topics(self) -> list[str]:
        return list(self._topics)

    def of_topic(self, topic: str) -> dict[int, Queue]:
        """The topic's queues by queue id."""
        return dict(self._topics.get(topic, {}))

    def queues(self) -> Iterator[Queue]:
        for queues in list(self._topics.values()):
            yield from list(queues.values())

    def correct_min(self, log_start: int) -> None:
        """Raise every queue's min offset to its first message that the log still has."""
        for queue in self.queues():
            queue.correct_min(log_start)

    def truncate_after(self, log_end: int) -> None:
        """Remove what points at or beyond `log_end` from every queue."""
        for queue in self.queues():
            queue.truncate_after(log_end)

    def delete_expired(self, log_start: int) -> int:
        """Delete queue files that only point below `log_start`; returns how many went.

        Tails are written first: the log cannot dispatch again what it has deleted, and a queue's offset must
        outlive its messages. Callable from any thread.
        """
        self.write_pending()
        deleted = 0
        for queue in self.queues():
            with self.files.writing:  # a topic may be deleted, or the queues cut, by another thread
                deleted += queue.delete_expired(log_start)
        return deleted

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues and their files."""
        queues = self._topics.pop(topic, {})
        with self.files.writing:
            with self.files.lock:
                self._dirty = [queue for queue in self._dirty if queue.topic != topic]
            for queue in queues.values():
                queue.delete()
            for base in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{self._root}/{base}/{topic}")

    def delete_all(self) -> None:
        """Remove every queue: the log has no files, so nothing they point to exists."""
        for topic in self.topics():
            self.delete_topic(topic)

    def close(self) -> None:
        """Make everything durable and close the files."""
        self.flush()
        self.files.close()

    def _create(self, topic: str, queue_id: int) -> Queue:
        place = f"{topic}/{queue_id}"
        queue: Queue
        if self._topic_kind(topic) == "BatchCQ":
            directory = f"{self._root}/batchconsumequeue/{place}"
            queue = BatchConsumeQueue(self.files, directory, self._batch_file_bytes, topic, queue_id)
        else:
            ext = None
            if self._ext_enabled:
                ext = ConsumeQueueExt(self.files, f"{self._root}/consumequeue_ext/{place}", self._ext_file_bytes)
            directory = f"{self._root}/consumequeue/{place}"
            queue = ConsumeQueue(self.files, directory, self._queue_file_bytes, topic, queue_id, ext)
        self._topics.setdefault(topic, {})[queue_id] = queue
        return queue


def _queue_directories(base: str) -> Iterator[tuple[str, int]]:
    if not os.path.isdir(base):
        return
    for topic in os.scandir(base):
        if not topic.is_dir():
            continue
        if topic.is_symlink():
            refuse_foreign_link(topic.path)
        for queue in os.scandir(topic.path):
            if queue.name.isdigit() and queue.is_dir():
                if queue.is_symlink():
                    refuse_foreign_link(queue.path)
                yield topic.name, int(queue.name)
            else:
                log.warning("not a queue directory: ignored", path=queue.path)
