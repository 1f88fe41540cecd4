"""`format("rocketmq_store")`: store directories as tables, Twinlog's or Java's, live or copied.

    spark.read.format("rocketmq_store").option("topic", "Orders").load("/data/broker-a/store")
    spark.read.format("rocketmq_store").option("kind", "consumer_offsets").load("/data/*/store")

Files are only read, never locked, so a broker may run on them. Every worker must see the same paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from twinlog.spark.errors import errors_without_traceback
from twinlog.spark.schema import (
    STORE_MESSAGE_COLUMNS,
    TABLE_COLUMNS,
    Columns,
    chosen_columns,
    ddl,
    message_columns,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from twinlog.spark.reading.stores.options import StoreOptions
    from twinlog.spark.reading.stores.stream_reader import StoreStreamReader


@errors_without_traceback
class RocketmqStoreSource(DataSource):
    """Reads store directories."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> str:
        from twinlog.spark.reading.stores.options import store_options

        return ddl(_known(store_options(self._plain_options())))

    def reader(self, schema: StructType) -> DataSourceReader:
        from twinlog.spark.reading.stores.batch_reader import StoreBatchReader, TableReader
        from twinlog.spark.reading.stores.options import store_options

        options = store_options(self.options)
        columns = chosen_columns(schema, _known(options))
        if options.kind != "messages":
            return TableReader(options, columns)
        return StoreBatchReader(options, columns)

    def streamReader(self, schema: StructType) -> StoreStreamReader:
        from twinlog.spark.reading.stores.options import store_options
        from twinlog.spark.reading.stores.stream_reader import StoreStreamReader

        options = store_options(self.options, streaming=True)
        return StoreStreamReader(options, chosen_columns(schema, _known(options)))

    def _plain_options(self) -> dict[str, str]:
        # Spark asks for the schema before it is known whether this is a batch or a stream.
        return {
            name: value for name, value in self.options.items() if name not in ("startingoffsets", "maxbytespertrigger")
        }


def _known(options: StoreOptions) -> Columns:
    if options.kind != "messages":
        return TABLE_COLUMNS[options.kind]
    return message_columns(STORE_MESSAGE_COLUMNS, include_properties=options.include_properties)
