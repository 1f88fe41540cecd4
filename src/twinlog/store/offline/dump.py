"""The content of a store as rows for people and programs: plain values, one dictionary per thing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinlog.base.addresses import address_text
from twinlog.store.offline.store_files import StoreFiles
from twinlog.store.offline.tail_file import Damage, read_tail
from twinlog.store.scan.walk import Hole, LogEnd, walk_log
from twinlog.wire.message import Message, decode_message


def dump_log(
    store: StoreFiles,
    *,
    topic: str | None = None,
    queue_id: int | None = None,
    begin: int | None = None,
    limit: int | None = None,
    with_body: bool = False,
) -> Iterator[dict[str, Any]]:
    """Records in log order, holes between them, and the end. `limit` counts records."""
    shown = 0
    for found in walk_log(store.commit_log, begin):
        if isinstance(found, Hole):
            yield {"hole": found.begin, "bytes": found.end - found.begin, "reason": found.reason}
            continue
        if isinstance(found, LogEnd):
            yield {"end": found.physical_offset, "torn": found.is_torn}
            return
        for row in range(len(found)):
            if limit is not None and shown >= limit:
                return
            if topic is not None and found.topics[int(found.topic_number[row])] != topic:
                continue
            if queue_id is not None and int(found.queue_id[row]) != queue_id:
                continue
            shown += 1
            yield _record(found.buffer, int(found.position[row]), with_body)


def dump_queues(store: StoreFiles, *, topic: str | None = None) -> Iterator[dict[str, Any]]:
    """Every queue with its offsets on disk."""
    for queue in store.queues():
        if topic is None or queue.topic == topic:
            low, high = queue.ends()
            kind = "BatchCQ" if queue.is_batch else "SimpleCQ"
            yield {"topic": queue.topic, "queue_id": queue.queue_id, "kind": kind, "min": low, "max": high}


def dump_index(store: StoreFiles) -> Iterator[dict[str, Any]]:
    """Every index file with the times and offsets it covers."""
    for file in store.index_files():
        yield {
            "file": file.path.name,
            "entries": file.count - 1,
            "slots_used": file.slots_used,
            "begin_timestamp": file.begin_timestamp,
            "end_timestamp": file.end_timestamp,
            "begin_physical_offset": file.begin_physical,
            "end_physical_offset": file.end_physical,
        }


def dump_state(store: StoreFiles) -> Iterator[dict[str, Any]]:
    """Checkpoint, markers and segments."""
    yield {
        "live": store.is_live,
        "abort_marker": store.was_aborted,
        "segments": len(store.commit_log.segments),
        "segment_bytes": store.commit_log.segment_size,
        "log_start": store.commit_log.log_start,
        "checkpoint": asdict(store.checkpoint),
    }


def dump_tail(
    path: Path,
    *,
    topic: str | None = None,
    queue_id: int | None = None,
    begin: int | None = None,
    limit: int | None = None,
    with_body: bool = False,
) -> Iterator[dict[str, Any]]:
    """The records of a tail that was cut off, and what is damaged in it."""
    shown = 0
    for found in read_tail(path):
        if isinstance(found, Damage):
            yield {"hole": found.physical_offset, "bytes": found.bytes, "reason": found.reason}
            return
        if limit is not None and shown >= limit:
            return
        matches = topic in (None, found.topic) and queue_id in (None, found.queue_id)
        if matches and found.physical_offset >= (begin or 0):
            shown += 1
            yield _row(found, with_body)


def _record(buffer: memoryview, position: int, with_body: bool) -> dict[str, Any]:
    return _row(decode_message(buffer, position, check_crc=False), with_body)


def _row(message: Message, with_body: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "physical_offset": message.physical_offset,
        "size": message.store_size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "born_timestamp": message.born_timestamp,
        "born_host": address_text(*message.born_host),
        "store_timestamp": message.store_timestamp,
        "store_host": address_text(*message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_bytes": len(message.body),
        "properties": message.properties,
    }
    if with_body:
        row["body"] = message.body.decode("utf-8", "backslashreplace")
    return row
