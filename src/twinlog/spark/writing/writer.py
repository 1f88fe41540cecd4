"""`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

Spark makes a writer in the driver, sends it to the tasks, and passes what their `write` returned to the `commit` of
another copy in the driver. Rows are in the topic as soon as a broker has acknowledged them: `commit` and `abort` only
log.

Spark makes and commits a writer in processes that it starts anew for each write. So what only tasks need (Arrow, numpy,
the client) is imported by tasks: all of it takes half a second.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from twinlog.spark.errors import CannotWrite, errors_without_traceback
from twinlog.spark.offsets import encode_offsets
from twinlog.spark.writing.totals import SendTotals
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    import pyarrow as pa

    from twinlog.spark.writing.options import WriteOptions
    from twinlog.spark.writing.task import TaskPlace

log = get_logger(__name__)
BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    result: SendTotals


@errors_without_traceback
class QueueWriter(DataSourceArrowWriter):
    """Writes a frame once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = pickle.dumps(options)  # opened by tasks only: the copy that commits does not import them

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from twinlog.spark.writing.task import TaskPlace, TaskWrite

        options: WriteOptions = pickle.loads(self._options)
        context = TaskContext.get()
        partition_id = context.partitionId() if context is not None else 0
        place = TaskPlace(options.write_id or "", partition_id=partition_id)
        return Written(TaskWrite(options, place).run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_totals("a frame was written", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_totals("a write failed; rows already sent stay in the topics", messages)


@errors_without_traceback
class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = pickle.dumps(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from twinlog.spark.writing.task import TaskWrite

        options: WriteOptions = pickle.loads(self._options)
        return Written(TaskWrite(options, stream_place(TaskContext.get(), options)).run(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_totals("a batch was written", messages, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_totals("a batch failed; rows already sent stay in the topics", messages, batch=batchId)


def stream_place(context: TaskContext | None, options: WriteOptions) -> TaskPlace:
    """Which part of a stream a task writes: its query, batch and partition."""
    from twinlog.spark.writing.task import TaskPlace

    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
    if query_id is None or batch_id is None:
        if options.idempotent:
            raise CannotWrite(
                f"Spark gives a task neither {QUERY_ID} nor {BATCH_ID}, so its rows cannot be identified:"
                " write without idempotent, or from foreachBatch with a writeId of your own"
            )
        return TaskPlace("", 0, context.partitionId() if context is not None else 0)
    assert context is not None
    return TaskPlace(query_id, int(batch_id), context.partitionId())


def _log_totals(what: str, messages: Sequence[WriterCommitMessage | None], **more: object) -> None:
    results = [message.result for message in messages if isinstance(message, Written)]
    unsafe: Counter[str] = Counter()
    last: dict = {}
    for result in results:
        unsafe.update(result.unsafe)
        for queue, offset in result.last_offsets.items():
            last[queue] = max(offset, last.get(queue, -1))
    numbers = {name: sum(getattr(result, name) for result in results) for name in ("rows", "skipped", "retries")}
    log.info(what, **more, tasks=len(results), **numbers, unsafe=dict(unsafe), last_offsets=encode_offsets(last))
