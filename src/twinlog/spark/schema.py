"""The columns of the sources: their order, and their types as Spark and Arrow know them.

Spark accepts an Arrow batch only if the order, names, types and nullability of its columns equal the Spark schema. It
checks only the first batch of a partition; `checked` therefore checks every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinlog.spark.ddl_types import arrow_type, quoted
from twinlog.spark.errors import BadSchema, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Columns = dict[str, str]  # name -> type as Spark's DDL writes it

# bodyCRC is that of the stored body. A body that was sent compressed arrives decompressed, and sysFlag then has no
# compression bits.
MESSAGE_COLUMNS: Columns = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "commitLogOffset": "bigint",
    "msgId": "string",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "flag": "int",
    "sysFlag": "int",
    "bodyCRC": "int",
    "storeSize": "int",
    "bornTimestamp": "timestamp",
    "bornHost": "string",
    "storeTimestamp": "timestamp",
    "storeHost": "string",
    "reconsumeTimes": "int",
    "preparedTransactionOffset": "bigint",
}
STORE_MESSAGE_COLUMNS: Columns = {**MESSAGE_COLUMNS, "segment": "string"}
TABLE_COLUMNS: dict[str, Columns] = {
    "consume_queue": {
        "topic": "string",
        "brokerName": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "commitLogOffset": "bigint",
        "size": "int",
        "tagsCode": "bigint",
        "batchSize": "int",
    },
    "index": {
        "brokerName": "string",
        "file": "string",
        "entry": "int",
        "keyHash": "int",
        "commitLogOffset": "bigint",
        "storeTimestamp": "timestamp",
        "previousEntry": "int",
    },
    "consumer_offsets": {
        "topic": "string",
        "brokerName": "string",
        "consumerGroup": "string",
        "queueId": "int",
        "offset": "bigint",
    },
    "topic_configs": {
        "topic": "string",
        "brokerName": "string",
        "readQueueNums": "int",
        "writeQueueNums": "int",
        "perm": "int",
        "topicFilterType": "string",
        "topicSysFlag": "int",
        "order": "boolean",
        "attributes": "map<string,string>",
    },
    "subscription_groups": {
        "consumerGroup": "string",
        "brokerName": "string",
        "consumeEnable": "boolean",
        "consumeFromMinEnable": "boolean",
        "consumeBroadcastEnable": "boolean",
        "consumeMessageOrderly": "boolean",
        "retryQueueNums": "int",
        "retryMaxTimes": "int",
        "whichBrokerWhenConsumeSlowly": "bigint",
        "notifyConsumerIdsChangedEnable": "boolean",
        "groupSysFlag": "int",
        "consumeTimeoutMinute": "int",
        "attributes": "map<string,string>",
        "forbidden": "map<string,string>",
    },
    "delay_offsets": {
        "brokerName": "string",
        "level": "int",
        "offset": "bigint",
    },
    "timer": {
        "brokerName": "string",
        "deliveredBefore": "timestamp",
        "queueOffset": "bigint",
        "counter": "bigint",
    },
}
# Tables of metadata. Stores hold them, and live brokers give them too: each broker, master or replica, its own.
MESSAGES = "messages"
METADATA_KINDS = ("topic_configs", "consumer_offsets", "subscription_groups", "delay_offsets", "timer")
_OF_QUEUE: Columns = {"minOffset": "bigint", "maxOffset": "bigint"}
_OF_BROKER: Columns = {"brokerId": "int", "address": "string"}  # 0 is the master
LIVE_COLUMNS: dict[str, Columns] = {
    kind: {**TABLE_COLUMNS[kind], **(_OF_QUEUE if kind == "consumer_offsets" else {}), **_OF_BROKER}
    for kind in METADATA_KINDS
}


def message_columns(base: Columns, *, include_properties: bool) -> Columns:
    """`base`, without the map of properties unless it is wanted."""
    return {name: kind for name, kind in base.items() if include_properties or name != "properties"}


def ddl(columns: Columns) -> str:
    """The schema as `DataSource.schema` returns it."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def arrow_schema(columns: Columns) -> pa.Schema:
    import pyarrow as pa  # not at the top: Spark imports all sources to read their names

    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])


def chosen_columns(schema: StructType, known: Columns) -> Columns:
    """The columns of `schema`, in its order; BadSchema for one that the source does not have."""
    chosen: Columns = {}
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise BadSchema(f"this source has no column {field.name!r}: {columns_of(field.name, known)}")
        if field.dataType.simpleString() != kind:
            found = field.dataType.simpleString()
            raise BadSchema(f"column {field.name!r} is {kind}, the schema has {found}: declare it as {kind} and cast")
        if not field.nullable:
            raise BadSchema(
                f"column {field.name!r} is declared NOT NULL, which Spark cannot read from this source: remove NOT NULL"
            )
        if field.name in chosen:
            raise BadSchema(f"column {field.name!r} is declared twice: name each column once")
        chosen[field.name] = kind
    return chosen


def checked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch`, after a check that Spark will read it correctly."""
    assert batch.schema.equals(schema), f"a batch of {batch.schema} was made for {schema}"
    return batch


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return checked(pa.RecordBatch.from_arrays(list(arrays), schema=schema), schema)
