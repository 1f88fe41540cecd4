"""The columns that a frame may have when it is written, and their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.spark.errors import BadSchema, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WRITE_COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp", "bigint"),
    "queueId": ("int",),
    "shardingKey": ("string",),
    "brokerName": ("string",),
}


def check_columns(schema: StructType, *, topic_given: bool) -> None:
    """BadSchema for a frame that cannot be written; it says what to change."""
    seen: set[str] = set()
    for field in schema.fields:
        kinds = WRITE_COLUMNS.get(field.name)
        if kinds is None:
            hint = columns_of(field.name, WRITE_COLUMNS)
            raise BadSchema(f"a message has no column {field.name!r}: {hint}; select the columns to write")
        found = field.dataType.simpleString()
        if found not in kinds and not (found.startswith(("varchar(", "char(")) and "string" in kinds):
            raise BadSchema(f"column {field.name!r} is {found}, a message has {_wanted(field.name, kinds, found)}")
        if field.name in seen:
            raise BadSchema(f"column {field.name!r} appears twice: name each column once")
        seen.add(field.name)
    if "body" not in seen:
        hint = f"rename one of {', '.join(sorted(seen))}" if seen else "the frame has no columns"
        raise BadSchema(f"column 'body' is missing, string or binary: {hint}")
    if "topic" not in seen and not topic_given:
        raise BadSchema("no topic: give option topic, or a column 'topic' with one for each row")


def _wanted(name: str, kinds: tuple[str, ...], found: str) -> str:
    if name == "body":
        # Spark refuses cast(bigint as binary) in its ANSI mode, so binary is not suggested.
        how = "to_json" if found.startswith(("struct", "map", "array")) else "cast(body as string)"
        return f"string or binary there: make text of it with {how}"
    how = "a map from string to string" if name == "properties" else f"cast({name} as {kinds[0]})"
    return f"{kinds[0]} there: write {how}"


def plain_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column in the Arrow type that the encoder needs; None if the frame lacks it or it has only nulls."""
    import pyarrow as pa

    at = batch.schema.get_field_index(name)
    if at < 0:
        return None
    types = {"body": pa.binary(), "flag": pa.int32(), "delayLevel": pa.int32(), "queueId": pa.int32()}
    column = batch.column(at)
    if len(column) and column.null_count == len(column):
        return None
    if name == "properties":
        return column
    if name == "deliverAt":  # milliseconds; a fraction of one is cut off
        return (column.cast(pa.timestamp("ms"), safe=False) if pa.types.is_timestamp(column.type) else column).cast(
            pa.int64()
        )
    wanted = types.get(name, pa.string())
    return column if column.type == wanted else column.cast(wanted)
