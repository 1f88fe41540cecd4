"""`format("rocketmq")`: topics of a cluster as tables and streams.

    spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("topic", "Orders").load()
    spark.read.format("rocketmq").options(nameServer="127.0.0.1:9876", kind="consumer_offsets").load()

Spark finds this source by the name of the module `pyspark_rocketmq`, without registration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader

from twinlog.spark.errors import BadOption, errors_without_traceback
from twinlog.spark.option_values import OptionValues, option_includes_properties, refuse_persistent_table
from twinlog.spark.schema import (
    LIVE_COLUMNS,
    MESSAGE_COLUMNS,
    MESSAGES,
    METADATA_KINDS,
    chosen_columns,
    ddl,
    message_columns,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


@errors_without_traceback
class RocketmqSource(DataSource):
    """Reads and writes topics; `register` makes a subclass that has the default checkpoint location."""

    default_checkpoints: str | None = None
    s3a: ClassVar[Mapping[str, str]] = {}  # settings of buckets, for the planning process, which has no session

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        refuse_persistent_table(self.options)
        kind = self._kind()
        if kind != MESSAGES:
            return ddl(LIVE_COLUMNS[kind])
        return ddl(message_columns(MESSAGE_COLUMNS, include_properties=option_includes_properties(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        if (kind := self._kind()) != MESSAGES:
            from twinlog.spark.reading.brokers.metadata_reader import MetadataReader, metadata_options

            return MetadataReader(metadata_options(self.options), chosen_columns(schema, LIVE_COLUMNS[kind]))
        from twinlog.spark.reading.brokers.batch_reader import QueueBatchReader
        from twinlog.spark.reading.brokers.options import read_options

        options = read_options(self.options, streaming=False)
        columns = chosen_columns(
            schema, message_columns(MESSAGE_COLUMNS, include_properties=options.include_properties)
        )
        return QueueBatchReader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if (kind := self._kind()) != MESSAGES:
            raise BadOption(f"kind={kind} is a small table without a stream: read it with spark.read")
        from twinlog.spark.reading.brokers.options import read_options
        from twinlog.spark.reading.brokers.stream_reader import QueueStreamReader

        options = read_options(self.options, streaming=True)
        columns = chosen_columns(
            schema, message_columns(MESSAGE_COLUMNS, include_properties=options.include_properties)
        )
        return QueueStreamReader(options, columns, self.default_checkpoints, self.s3a)

    def _kind(self) -> str:
        """What is read: messages, or a table of metadata."""
        return OptionValues({"kind": self.options.get("kind", MESSAGES)}, known=("kind",)).choice(
            "kind", MESSAGES, (MESSAGES, *METADATA_KINDS)
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from twinlog.spark.writing.columns import check_columns
        from twinlog.spark.writing.options import write_options
        from twinlog.spark.writing.writer import QueueWriter

        if overwrite:
            raise BadOption(
                'mode("overwrite") is not possible: messages are only ever added; write with mode("append")'
            )
        options = write_options(self.options, streaming=False)
        check_columns(schema, topic_given=options.topic is not None)
        return QueueWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from twinlog.spark.writing.columns import check_columns
        from twinlog.spark.writing.options import write_options
        from twinlog.spark.writing.writer import QueueStreamWriter

        if overwrite:
            raise BadOption(
                'outputMode("complete") would write all rows again with each batch, and messages are only ever'
                ' added; use outputMode("append") or ("update")'
            )
        options = write_options(self.options, streaming=True)
        check_columns(schema, topic_given=options.topic is not None)
        return QueueStreamWriter(options)
