"""The columns of the sources: their order, and their types as Spark and Arrow know them.

Spark takes an Arrow batch only if it equals the Spark schema exactly, in the order, names, types and nullability of its
columns, and looks at nothing but the first batch of a partition; `checked` therefore looks at every one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinlog.spark.errors import BadSchema, nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Columns = dict[str, str]  # name -> type as Spark's DDL writes it

# bodyCRC is that of the body as the broker stored it. A body that was sent compressed arrives inflated, and
# sysFlag then has no compression bits.
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
}


def message_columns(base: Columns, *, include_properties: bool) -> Columns:
    """`base`, without the map of properties when it is not wanted."""
    return {name: kind for name, kind in base.items() if include_properties or name != "properties"}


def ddl(columns: Columns) -> str:
    """The schema as `DataSource.schema` returns it."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def arrow_schema(columns: Columns) -> pa.Schema:
    import pyarrow as pa  # not at the top: Spark imports the sources only to learn their names

    types = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(name, types[kind]) for name, kind in columns.items()])


def chosen_columns(schema: StructType, known: Columns) -> Columns:
    """The columns that `schema` asks for, in its order; BadSchema when the source does not have one of them."""
    chosen: Columns = {}
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise BadSchema(f"there is no column {field.name!r} here: {nearest(field.name, known)}")
        if field.dataType.simpleString() != kind:
            found = field.dataType.simpleString()
            raise BadSchema(f"column {field.name!r} is {kind}, the schema says {found}: declare it as {kind} and cast")
        if not field.nullable:
            raise BadSchema(f"column {field.name!r} is declared NOT NULL, which Spark cannot read from here: drop that")
        if field.name in chosen:
            raise BadSchema(f"column {field.name!r} is declared twice: name each column once")
        chosen[field.name] = kind
    return chosen


def checked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch`, once it is certain that Spark reads it as it is meant."""
    assert batch.schema.equals(schema), f"a batch of {batch.schema} was made for {schema}"
    return batch


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return checked(pa.RecordBatch.from_arrays(list(arrays), schema=schema), schema)
