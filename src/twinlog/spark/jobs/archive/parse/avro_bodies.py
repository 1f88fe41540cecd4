"""Avro bodies: one value of the schema's record in Avro's binary form, without a header."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from twinlog.spark.ddl_types import DECIMAL_DIGITS_MAX
from twinlog.spark.errors import BadSchema
from twinlog.spark.jobs.archive.parse.parser import BodyError

if TYPE_CHECKING:
    from twinlog.spark.jobs.archive.parse.parser import ParseBody, ParsePlan

_SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def field_types(plan: ParsePlan) -> dict[str, pa.DataType]:
    schema = _schema(plan)
    named: dict[str, Any] = {}
    return {field["name"]: _arrow(field["type"], named, (schema["name"],)) for field in schema["fields"]}


def body_parser(plan: ParsePlan) -> ParseBody:
    schema = _schema(plan)

    def parse(body: bytes) -> dict[str, Any]:
        stream = io.BytesIO(body)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except EOFError:
            raise BodyError(f"the body of {len(body)} bytes ends within a value") from None
        except Exception as error:  # fastavro raises whatever the bytes lead it into
            raise BodyError(f"not a value of {schema['name']}: {error}") from error
        if left := len(body) - stream.tell():
            raise BodyError(f"{left} of {len(body)} bytes are left after the value")
        assert isinstance(value, dict)
        return value

    return parse


def _schema(plan: ParsePlan) -> dict[str, Any]:
    try:
        found = fastavro.parse_schema(json.loads(plan.schema, object_hook=_without_uuid))
    except (ValueError, SchemaParseException, UnknownType, KeyError, TypeError) as error:
        raise BadSchema(f"the Avro schema cannot be used ({error}): give a schema in Avro's JSON") from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise BadSchema("the Avro schema is not a record: its fields become the columns")
    return found


def _without_uuid(found: dict[str, Any]) -> dict[str, Any]:
    """A UUID stays the text that it is."""
    return {key: value for key, value in found.items() if (key, value) != ("logicalType", "uuid")}


def _arrow(kind: Any, named: dict[str, Any], above: tuple[str, ...]) -> pa.DataType:
    if isinstance(kind, list):
        return _union(kind, named, above)
    if isinstance(kind, str):
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind in above:
            raise BadSchema(f"the Avro record {kind} contains itself: a column has a fixed depth")
        return _arrow(named[kind], named, above)
    logical = kind.get("logicalType")
    if logical in _LOGICAL and kind["type"] in ("int", "long"):
        return _LOGICAL[logical]
    if logical == "decimal":
        digits = int(kind["precision"])
        if digits > DECIMAL_DIGITS_MAX:
            raise BadSchema(f"an Avro decimal has {digits} digits: at most {DECIMAL_DIGITS_MAX} are possible")
        return pa.decimal128(digits, int(kind.get("scale", 0)))
    if logical is not None:
        raise BadSchema(f"the Avro type {logical} cannot be a column: use int, long or a timestamp")
    if kind["type"] == "array":
        return pa.list_(_arrow(kind["items"], named, above))
    if kind["type"] == "map":
        return pa.map_(pa.string(), _arrow(kind["values"], named, above))
    if "name" in kind:
        named[kind["name"]] = kind
    if kind["type"] == "enum":
        return pa.string()
    if kind["type"] == "fixed":
        return pa.binary()
    if kind["type"] == "record":
        inside = (*above, kind["name"])
        return pa.struct([pa.field(field["name"], _arrow(field["type"], named, inside)) for field in kind["fields"]])
    return _arrow(kind["type"], named, above)


def _union(kinds: list[Any], named: dict[str, Any], above: tuple[str, ...]) -> pa.DataType:
    others = [kind for kind in kinds if kind != "null"]
    if len(others) != 1:
        raise BadSchema(f"an Avro union of {len(others)} types cannot be a column: only null and one type can")
    return _arrow(others[0], named, above)
