"""Deletes the oldest segments of a replica (`--keep`), so that it is as a master that has deleted expired files.

    queue the records of the segments, durably -> delete the segments, the oldest first -> delete queue and index files

The queues come first: a copy has none, and a broker that starts on it builds them from the log. Of a queue whose
messages are all in deleted segments it would not know that it ever existed, and would count it from 0 again, where a
master's own retention leaves its end. With them, a queue's least offset is that of its first message in the log, and
a consumer's offset below it is answered as on a master. Killed between two steps, the next tick takes them again.

Age is that of the messages, by their master's clock: the file of a first copy is new, whatever is in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from twinlog.settings.store import StoreSettings
from twinlog.spark.jobs.sync.replicas.replica import Replica
from twinlog.spark.jobs.sync.sync_plan import Keep
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.lock import has_abort_marker, set_abort_marker
from twinlog.store.log.segment import SEGMENT_NAME
from twinlog.store.offline.store_files import stored_index_files
from twinlog.store.queues.queue_table import QueueTable
from twinlog.store.scan.column_batch import ColumnBatch
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.store.scan.walk import walk_log
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_TICK_BYTES = 2 * 1024**3  # deleted by one tick: each of these records is read once more
_DEFAULTS = StoreSettings()


def drop_old_segments(replica: Replica, keep: Keep, now_ms: int) -> int:
    """Delete what need not be kept; returns how many bytes of the log."""
    bases = replica.segment_bases()
    count = expired_count(
        bases, replica.log_end, keep, stored_ms=replica.stored_ms_at, now_ms=now_ms, bytes_max=_TICK_BYTES
    )
    if not count:
        return 0
    new_start = bases[count]
    if not has_abort_marker(replica.root):  # a broker that starts here compares queues and log from the start
        set_abort_marker(replica.root, replica.ops)
    with contextlib.closing(_open_queues(replica, now_ms)) as queues:
        _queue_records(replica, queues, new_start)
        queues.flush()
        dropped = _drop_segments(replica, new_start)
        queues.delete_expired(replica.log_start)
    _drop_index_files(replica.root, replica.log_start)
    log.info("old segments of a replica are deleted", replica=str(replica.root), log_start=replica.log_start)
    return dropped


def expired_count(
    bases: Sequence[int],
    log_end: int,
    keep: Keep,
    *,
    stored_ms: Callable[[int], int | None],
    now_ms: int,
    bytes_max: int,
) -> int:
    """How many of the oldest segments may go; at most `bytes_max` bytes of them, and never the last with records."""
    count = 0
    for following in bases[1:]:
        if following >= log_end:
            break
        if count and following - bases[0] > bytes_max:
            break
        if keep.bytes is not None and log_end - following < keep.bytes:
            break
        if keep.ms is not None:
            stored = stored_ms(following)  # all before it is older
            if stored is None or stored >= now_ms - keep.ms:
                break
        count += 1
    return count


def _open_queues(replica: Replica, now_ms: int) -> QueueTable:
    """The replica's queues; new files have the size that the master's have."""
    tables, root, master = replica.tables(now_ms), replica.root, replica.state.master
    given = None if master is None else master.queue_file_bytes
    plain = StoreSettings(queue_file_bytes_given=given or _DEFAULTS.queue_file_bytes_given).queue_file_bytes

    def kind(topic: str) -> str:
        config = tables.topics.get(topic)
        return "SimpleCQ" if config is None else config.attributes.get("queue.type", "SimpleCQ")

    queues = QueueTable(
        root,
        queue_file_bytes=_file_bytes(root / "consumequeue") or plain,
        batch_file_bytes=_file_bytes(root / "batchconsumequeue") or _DEFAULTS.batch_queue_file_bytes,
        ext_file_bytes=_file_bytes(root / "consumequeue_ext") or _DEFAULTS.queue_ext_file_bytes,
        ext_enabled=(root / "consumequeue_ext").is_dir(),
        topic_kind=kind,
        ops=replica.ops,
    )
    queues.load(clean=False)
    return queues


def _queue_records(replica: Replica, queues: QueueTable, end: int) -> None:
    """Add the records before `end` that the queues do not have."""
    levels = DelayLevels(_DEFAULTS.delay_levels)
    for found in walk_log(replica.commit_log, replica.log_start, check_crc=False):
        if not isinstance(found, ScannedRecords):
            continue
        if int(found.physical_offset[0]) >= end:
            break
        queues.dispatch(ColumnBatch(found.select(found.physical_offset < end), levels))
        queues.write_pending()


def _drop_segments(replica: Replica, new_start: int) -> int:
    commit_log, before = replica.commit_log, replica.log_start
    while commit_log.segments and commit_log.segments[0].base < new_start:
        if commit_log.drop_oldest() is None:
            break
    replica.log_start = commit_log.log_start
    replica.close_log()  # the files are gone when this returns
    return replica.log_start - before


def _drop_index_files(root: Path, log_start: int) -> None:
    """Those whose newest record is deleted, but never the last one, as a broker does."""
    files = list(stored_index_files(root, 0, 0))
    for file in files[:-1]:
        if file.end_physical < log_start:
            os.unlink(file.path)


def _file_bytes(directory: Path) -> int:
    """The size of the files of these queues, which all have the same; 0 when there are none."""
    files = (path for path in directory.glob("*/*/*") if SEGMENT_NAME.match(path.name))
    return max((path.stat().st_size for path in files), default=0)
