"""Tables of metadata as columns: the same for a store's files and for the answers of a live broker.

A table comes in as its file holds it. Columns are lists; `brokerName` is added by the reader, which knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from twinlog.metadata.timer_check import TimerProgress
from twinlog.replication.metadata.kinds import DELAY_OFFSETS, GROUPS, OFFSETS, TOPICS, Kind
from twinlog.spark.schema import Columns, arrow_schema, batch_of
from twinlog.wire.errors import BodyError

ColumnValues = dict[str, Sequence[Any]]
TIMER = "timer"
_TIME_MS_MAX = 253_402_300_799_999  # the last one of the year 9999
TABLE_OF_KIND: dict[str, Kind] = {  # the timer's progress is not a table
    "topic_configs": TOPICS,
    "consumer_offsets": OFFSETS,
    "subscription_groups": GROUPS,
    "delay_offsets": DELAY_OFFSETS,
}


def metadata_columns(kind: str, loaded: Any) -> ColumnValues:
    """The columns of one table; None, for a file that does not exist, has no rows."""
    rows = _ROWS[kind](loaded) if loaded is not None else []
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def metadata_batch(columns: Columns, values: ColumnValues, **same: Any) -> pa.RecordBatch:
    """The wanted columns as one batch; those in `same` have one value in all rows."""
    count = len(next(iter(values.values()), ()))
    schema = arrow_schema(columns)
    arrays = [
        pa.array(values[name] if name in values else [same[name]] * count, schema.field(name).type) for name in columns
    ]
    return batch_of(arrays, schema)


def _topic_rows(loaded: Any) -> list[dict[str, Any]]:
    return [
        {
            "topic": one.topic_name,
            "readQueueNums": one.read_queue_nums,
            "writeQueueNums": one.write_queue_nums,
            "perm": one.perm,
            "topicFilterType": one.topic_filter_type,
            "topicSysFlag": one.topic_sys_flag,
            "order": one.order,
            "attributes": _pairs(one.attributes),
        }
        for _, one in sorted((loaded.topic_config_table or {}).items())
    ]


def _offset_rows(loaded: Any) -> list[dict[str, Any]]:
    rows = []
    for key, offsets in sorted((loaded.offset_table or {}).items()):
        topic, _, group = key.partition("@")
        rows += [
            {"topic": topic, "consumerGroup": group, "queueId": queue_id, "offset": offset}
            for queue_id, offset in sorted(offsets.items())
        ]
    return rows


def _group_rows(loaded: Any) -> list[dict[str, Any]]:
    forbidden = loaded.forbidden_table or {}
    return [
        {
            "consumerGroup": name,
            "consumeEnable": one.consume_enable,
            "consumeFromMinEnable": one.consume_from_min_enable,
            "consumeBroadcastEnable": one.consume_broadcast_enable,
            "consumeMessageOrderly": one.consume_message_orderly,
            "retryQueueNums": one.retry_queue_nums,
            "retryMaxTimes": one.retry_max_times,
            "whichBrokerWhenConsumeSlowly": one.which_broker_when_consume_slowly,
            "notifyConsumerIdsChangedEnable": one.notify_consumer_ids_changed_enable,
            "groupSysFlag": one.group_sys_flag,
            "consumeTimeoutMinute": one.consume_timeout_minute,
            "attributes": _pairs(one.attributes),
            "forbidden": _pairs(forbidden.get(name) or {}),
        }
        for name, one in sorted((loaded.subscription_group_table or {}).items())
    ]


def _delay_rows(loaded: Any) -> list[dict[str, Any]]:
    return [{"level": int(level), "offset": at} for level, at in sorted((loaded.offset_table or {}).items())]


def check_progress(progress: TimerProgress | None) -> TimerProgress:
    """The timer's progress as it is; BodyError if it cannot be one."""
    if progress is None:
        raise BodyError("it is too short")
    if not 0 <= progress.read_time_ms <= _TIME_MS_MAX:
        raise BodyError(f"messages delivered before {progress.read_time_ms} ms, which is not a time")
    if progress.queue_offset < 0:
        raise BodyError(f"messages taken from the queue up to offset {progress.queue_offset}")
    return progress


def _timer_rows(progress: TimerProgress) -> list[dict[str, Any]]:
    before = datetime.fromtimestamp(progress.read_time_ms / 1000, UTC)
    return [{"deliveredBefore": before, "queueOffset": progress.queue_offset, "counter": progress.counter}]


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(key), str(value)) for key, value in sorted(values.items())]


_ROWS: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "topic_configs": _topic_rows,
    "consumer_offsets": _offset_rows,
    "subscription_groups": _group_rows,
    "delay_offsets": _delay_rows,
    TIMER: _timer_rows,
}
