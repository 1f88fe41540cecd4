"""From scanned columns to dispatch requests, for recovery and replicas.

`append` makes the same request for a record it writes; a property test holds them equal.
"""

from __future__ import annotations

from twinlog.base.system_names import SCHEDULE_TOPIC
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.dispatch import DispatchRequest
from twinlog.store.property_scan import dispatch_properties
from twinlog.store.scan.record_columns import ScannedRecords
from twinlog.wire.java_text import tags_code
from twinlog.wire.properties import INNER_BASE, INNER_NUM, decode_properties
from twinlog.wire.values.sys_flag import INNER_BATCH


def requests_of(batch: ScannedRecords, delay_levels: DelayLevels) -> list[DispatchRequest]:
    """One request per record, in log order."""
    requests: list[DispatchRequest] = []
    view = batch.buffer
    numbers: list[int] = batch.topic_number.tolist()
    topics = [batch.topics[number] for number in numbers]
    columns = (
        batch.queue_id,
        batch.physical_offset,
        batch.size,
        batch.store_timestamp,
        batch.queue_offset,
        batch.sys_flag,
        batch.prepared_transaction_offset,
        batch.properties_at,
        batch.properties_length,
    )
    for topic, queue_id, physical_offset, size, timestamp, queue_offset, flags, prepared, at, length in zip(
        topics, *(column.tolist() for column in columns), strict=True
    ):
        properties = bytes(view[at : at + length])
        requests.append(
            request_of(
                topic,
                queue_id,
                physical_offset,
                size,
                timestamp,
                queue_offset,
                flags,
                prepared,
                properties,
                delay_levels,
            )
        )
    return requests


def request_of(
    topic: str,
    queue_id: int,
    physical_offset: int,
    size: int,
    timestamp: int,
    queue_offset: int,
    flags: int,
    prepared: int,
    properties: bytes,
    delay_levels: DelayLevels,
) -> DispatchRequest:
    """The request for one valid record; what its properties mean for queues and index is decided here."""
    tags, keys, uniq_key = dispatch_properties(properties)
    code = tags_code(tags) if tags else 0
    if topic == SCHEDULE_TOPIC:
        code = delay_levels.delivery_time(properties, timestamp, code)
    batch_size = 1
    if flags & INNER_BATCH:
        queue_offset, batch_size = inner_batch(properties, queue_offset)
    return DispatchRequest(
        topic,
        queue_id,
        physical_offset,
        size,
        code,
        timestamp,
        queue_offset,
        keys,
        uniq_key,
        flags,
        prepared,
        properties,
        batch_size,
    )


def inner_batch(properties: bytes, queue_offset: int) -> tuple[int, int]:
    """(first queue offset, number of messages) of a record that holds a whole batch."""
    pairs = decode_properties(properties)
    try:
        return int(pairs[INNER_BASE]), int(pairs[INNER_NUM])
    except (KeyError, ValueError):
        return queue_offset, 1
