"""A streaming source whose tasks write the files of an archive; its rows describe those files.

It plans as `format("rocketmq")` or `format("rocketmq_store")` does, with the same readers. A row names one file in
staging. Only the files that the rows of a batch name are committed, so files of a failed attempt never are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from twinlog.spark.jobs.archive.layout import StagedFile
from twinlog.spark.jobs.archive.write import file_columns, message_schema, write_files
from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.local_lake import LocalLake
from twinlog.spark.reading.brokers.options import read_options
from twinlog.spark.reading.brokers.stream_reader import QueueStreamReader
from twinlog.spark.reading.stores.options import store_options
from twinlog.spark.reading.stores.stream_reader import StoreStreamReader
from twinlog.spark.schema import arrow_schema, ddl
from twinlog.wire.values.sys_flag import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSpec:
    """Everything that the tasks of a run need."""

    source: str  # brokers or stores
    options: dict[str, str]
    columns: tuple[str, ...]
    root: str
    staging: str
    compression: str
    topics: tuple[str, ...] = ()  # of stores; brokers are asked only for these
    pattern: str | None = None
    unwanted: str | None = None

    def encode(self) -> str:
        return json.dumps(asdict(self))


def decode_spec(text: str) -> ArchiveSpec:
    values = json.loads(text)
    return ArchiveSpec(**{**values, "columns": tuple(values["columns"]), "topics": tuple(values["topics"])})


class ArchiveSource(DataSource):
    """Registered by the job in its own session."""

    @classmethod
    def name(cls) -> str:
        return "twinlog_archive"

    def schema(self) -> str:
        return ddl(dict(file_columns()))

    def streamReader(self, schema: StructType) -> ArchivingReader:
        return ArchivingReader(decode_spec(self.options["spec"]))


class ArchivingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans as the reader inside does, and writes what that reads."""

    def __init__(self, spec: ArchiveSpec) -> None:
        self._spec = spec
        self._columns = message_schema(spec.columns)
        self._reader: QueueStreamReader | StoreStreamReader
        if spec.source == "brokers":
            self._reader = QueueStreamReader(read_options(spec.options, streaming=True), self._columns)
            self._reader.position_is_kept = "initialOffsetsLocation" not in spec.options  # see ArchiveJob
        else:
            columns = message_schema(dict.fromkeys((*spec.columns, "sysFlag")))
            self._reader = StoreStreamReader(store_options(spec.options, streaming=True), columns)

    def initialOffset(self) -> dict:
        return self._reader.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._reader.getDefaultReadLimit()

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        return self._reader.latestOffset(start, limit)

    def reportLatestOffset(self) -> dict | None:
        return self._reader.reportLatestOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return self._reader.partitions(start, end)

    def commit(self, end: dict) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spec = self._spec
        lake = LocalLake(parse_address(spec.root, "archive"))
        files = write_files(self.messages(partition), lake, spec.staging, self._columns, spec.compression)
        yield describe_files(files)

    def messages(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What the archive takes of this partition."""
        batches = self._reader.read(partition)
        return batches if self._spec.source == "brokers" else (keep_messages(one, self._spec) for one in batches)


def describe_files(files: Iterable[StagedFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([asdict(file) for file in files], arrow_schema(dict(file_columns())))


def keep_messages(batch: pa.RecordBatch, spec: ArchiveSpec) -> pa.RecordBatch:
    """The messages of the wanted topics. A log holds all topics of its broker, and also records that are in no queue:
    prepared and rolled-back messages of transactions."""
    topics = batch.column("topic").dictionary_encode()
    wanted = np.array([is_wanted(topic, spec) for topic in topics.dictionary.to_pylist()], np.bool_)
    keep = wanted[topics.indices.to_numpy()] & (batch.column("sysFlag").to_numpy() & TRANSACTION_PREPARED == 0)
    batch = batch.select(list(spec.columns))
    return batch if keep.all() else batch.filter(pa.array(keep))


def is_wanted(topic: str, spec: ArchiveSpec) -> bool:
    if spec.topics:
        return topic in spec.topics
    if spec.unwanted and re.fullmatch(spec.unwanted, topic):
        return False
    return spec.pattern is None or re.fullmatch(spec.pattern, topic) is not None
