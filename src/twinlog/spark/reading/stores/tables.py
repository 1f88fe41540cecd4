"""The small tables of a store: consume queues, index, and its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.tables import open_tables
from twinlog.metadata.timer_check import FILE_NAME, decode_file
from twinlog.spark.errors import BadOption, BadRecord
from twinlog.spark.reading.metadata_rows import TABLE_OF_KIND, TIMER, check_progress, metadata_columns
from twinlog.spark.reading.stores.options import StoreDirectory, StoreOptions
from twinlog.spark.schema import METADATA_KINDS, TABLE_COLUMNS, Columns, arrow_schema, batch_of
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


def _metadata(options: StoreOptions, part: TablePart) -> Iterator[dict]:
    directory = part.store.root / "config"
    if not directory.is_dir():
        raise BadRecord(
            f"{directory} does not exist: give a broker's storePathRootDir, copied with its directory config"
        )
    if values := metadata_columns(options.kind, _load(directory, options.kind)):
        yield dict(values)


def _load(directory: Path, kind: str) -> Any:
    """One table as its file holds it; None if there is no file. A broken file without a backup is an error."""
    if kind == TIMER:
        file = FileWithBackup(directory / FILE_NAME)
        loaded = file.load(lambda data: check_progress(decode_file(data)))
    else:
        table = TABLE_OF_KIND[kind].table(open_tables(directory, 0))
        assert table.file is not None
        file = table.file
        loaded = file.load(table.decode_file)
    if file.problem is not None and not file.from_backup:
        raise BadRecord(f"{file.path} cannot be read ({file.problem}) and has no backup: repair it")
    return loaded


_READERS = {
    "consume_queue": _consume_queues,
    "index": _index,
    **dict.fromkeys(METADATA_KINDS, _metadata),
}


def _open(store: StoreDirectory, options: StoreOptions) -> StoreFiles:
    return StoreFiles(
        store.root,
        commit_log_dirs=store.commit_log_dirs,
        index_slots=options.index_slots,
        index_entries=options.index_entries,
    )
