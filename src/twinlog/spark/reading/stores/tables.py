"""The small tables of a store: consume queues, index, consumer offsets, topic configurations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from twinlog.metadata.tables import MetadataTables, open_tables
from twinlog.spark.errors import BadOption, BadRecord
from twinlog.spark.reading.stores.options import StoreDirectory, StoreOptions
from twinlog.spark.schema import TABLE_COLUMNS, Columns, arrow_schema, batch_of
from twinlog.store.offline.store_files import StoredIndexFile, StoreFiles
from twinlog.store.queues.consume_queue import FILL_SIZE

_PARTITIONS_PER_STORE = 16


@dataclass(frozen=True, slots=True)
class TablePart:
    """One part of a small table: every `step`-th file of a store, beginning with `number`."""

    store: StoreDirectory
    number: int = 0
    step: int = 1


def plan_table(options: StoreOptions) -> list[TablePart]:
    parts = []
    for store in options.stores:
        count = 1
        if options.kind in ("consume_queue", "index"):
            with _open(store, options) as offline:
                files = offline.queues() if options.kind == "consume_queue" else offline.index_files()
                count = min(sum(1 for _ in files), _PARTITIONS_PER_STORE)
        parts += [TablePart(store, number, count) for number in range(count)]
    return parts


def read_table(options: StoreOptions, part: TablePart, columns: Columns) -> Iterator[pa.RecordBatch]:
    """The rows of one part, with the wanted columns."""
    known = TABLE_COLUMNS[options.kind]
    schema = arrow_schema(columns)
    for values in _READERS[options.kind](options, part):
        count = len(next(iter(values.values())))
        values["brokerName"] = [part.store.broker_name] * count
        arrays = [_array(values[name], known[name], schema.field(name).type) for name in columns]
        yield batch_of(arrays, schema)


def _array(values: object, kind: str, arrow_type: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray):
        if kind == "timestamp":
            return pa.array(values.astype(np.int64) * 1000).view(arrow_type)
        return pa.array(values.astype(arrow_type.to_pandas_dtype()), arrow_type)
    return pa.array(values, arrow_type)


def _consume_queues(options: StoreOptions, part: TablePart) -> Iterator[dict]:
    with _open(part.store, options) as offline:
        for queue in list(offline.queues())[part.number :: part.step]:
            for first, units in queue.chunks():
                real = units["size"] != FILL_SIZE
                numbers = units["base_offset"] if queue.is_batch else first + np.arange(len(units))
                count = int(real.sum())
                if not count:
                    continue
                yield {
                    "topic": [queue.topic] * count,
                    "queueId": np.full(count, queue.queue_id),
                    "queueOffset": numbers[real],
                    "commitLogOffset": units["physical_offset"][real],
                    "size": units["size"][real],
                    "tagsCode": units["tags_code"][real],
                    "batchSize": units["batch_size"][real] if queue.is_batch else np.ones(count),
                }


def _index(options: StoreOptions, part: TablePart) -> Iterator[dict]:
    with _open(part.store, options) as offline:
        for file in list(offline.index_files())[part.number :: part.step]:
            _check_size(file, options)
            number = 1
            for entries in file.chunks():
                yield {
                    "file": [file.path.name] * len(entries),
                    "entry": np.arange(number, number + len(entries)),
                    "keyHash": entries["key_hash"],
                    "commitLogOffset": entries["physical_offset"],
                    "storeTimestamp": file.begin_timestamp + entries["seconds"].astype(np.int64) * 1000,
                    "previousEntry": entries["previous"],
                }
                number += len(entries)


def _check_size(file: StoredIndexFile, options: StoreOptions) -> None:
    if not file.has_expected_size:
        given = f"{options.index_slots} slots and {options.index_entries} entries"
        size = file.path.stat().st_size
        raise BadOption(
            f"index file {file.path} has {size} bytes, which are not {given}: "
            "give maxHashSlotNum and maxIndexNum as in the broker's configuration"
        )


def _consumer_offsets(options: StoreOptions, part: TablePart) -> Iterator[dict]:
    table = _tables(part.store).offsets
    table.load()
    rows = []
    for key, offsets in sorted(table.rows.items()):
        topic, _, group = key.partition("@")
        rows += [(topic, group, queue_id, offset) for queue_id, offset in sorted(offsets.items())]
    if rows:
        topics, groups, queues, numbers = zip(*rows, strict=True)
        yield {"topic": topics, "consumerGroup": groups, "queueId": queues, "offset": numbers}


def _tables(store: StoreDirectory) -> MetadataTables:
    directory = store.root / "config"
    if not directory.is_dir():
        raise BadRecord(
            f"{directory} does not exist: give a broker's storePathRootDir, copied with its directory config"
        )
    return open_tables(directory, 0)


def _topic_configs(options: StoreOptions, part: TablePart) -> Iterator[dict]:
    table = _tables(part.store).topics
    table.load()
    configs = [table.rows[name] for name in sorted(table.rows)]
    if configs:
        yield {
            "topic": [one.topic_name for one in configs],
            "readQueueNums": [one.read_queue_nums for one in configs],
            "writeQueueNums": [one.write_queue_nums for one in configs],
            "perm": [one.perm for one in configs],
            "topicFilterType": [one.topic_filter_type for one in configs],
            "topicSysFlag": [one.topic_sys_flag for one in configs],
            "order": [one.order for one in configs],
            "attributes": [list(one.attributes.items()) for one in configs],
        }


_READERS = {
    "consume_queue": _consume_queues,
    "index": _index,
    "consumer_offsets": _consumer_offsets,
    "topic_configs": _topic_configs,
}


def _open(store: StoreDirectory, options: StoreOptions) -> StoreFiles:
    return StoreFiles(
        store.root,
        commit_log_dirs=store.commit_log_dirs,
        index_slots=options.index_slots,
        index_entries=options.index_entries,
    )
