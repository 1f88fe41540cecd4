"""Protobuf bodies: one message, by a descriptor set.

A field that the schema does not know is ignored, as Protobuf does. Where Protobuf records whether a field was set, one
that was not is null; elsewhere it has Protobuf's default. Enums are the names of their values.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from twinlog.spark.errors import BadSchema, nearest
from twinlog.spark.jobs.archive.parse.parser import BodyError

if TYPE_CHECKING:
    from twinlog.spark.jobs.archive.parse.parser import ParseBody, ParsePlan

_SIMPLE = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_TIMESTAMP = "google.protobuf.Timestamp"
Convert = Callable[[Any], Any]


def field_types(plan: ParsePlan) -> dict[str, pa.DataType]:
    message = _descriptor(plan)
    return {field.name: _arrow(field, (message.full_name,)) for field in message.fields}


def body_parser(plan: ParsePlan) -> ParseBody:
    descriptor = _descriptor(plan)
    made = message_factory.GetMessageClass(descriptor)
    convert = _converter(descriptor)

    def parse(body: bytes) -> dict[str, Any]:
        message: Any = made()
        try:
            message.ParseFromString(body)
        except DecodeError as error:
            raise BodyError(f"not a {descriptor.full_name}: {error}") from error
        missing = message.FindInitializationErrors()
        if missing:
            raise BodyError(f"a {descriptor.full_name} without its required {', '.join(missing)}")
        return convert(message)

    return parse


def _descriptor(plan: ParsePlan) -> Any:
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(base64.b64decode(plan.schema))
    except DecodeError as error:
        hint = "make it with protoc --include_imports --descriptor_set_out"
        raise BadSchema(f"the file of {plan.message} is not a descriptor set ({error}): {hint}") from error
    pool: Any = descriptor_pool.DescriptorPool()
    names = [f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type]
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(plan.message)
    except KeyError:
        known = nearest(plan.message, names) if names else "it has no message at all"
        raise BadSchema(f"the descriptor set has no message {plan.message!r}: {known}") from None
    except TypeError as error:
        raise BadSchema(f"the descriptor set is not complete ({error}): make it with --include_imports") from error


def _arrow(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return pa.map_(_arrow_one(key, above), _arrow_one(value, above))
    one = _arrow_one(field, above)
    return pa.list_(one) if _is_repeated(field) else one


def _arrow_one(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return _SIMPLE[field.cpp_type]
    inner = field.message_type
    if inner.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if inner.full_name in above:
        raise BadSchema(f"the Protobuf message {inner.full_name} contains itself: a column has a fixed depth")
    if not inner.fields:
        raise BadSchema(f"the Protobuf message {inner.full_name} has no field: it cannot be a column")
    return pa.struct([pa.field(one.name, _arrow(one, (*above, inner.full_name))) for one in inner.fields])


def _converter(descriptor: Any) -> Convert:
    """A message of this type as a dictionary."""
    fields = [(field.name, field.has_presence, _value(field)) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: None if presence and not message.HasField(name) else value(getattr(message, name))
            for name, presence, value in fields
        }

    return convert


def _value(field: Any) -> Convert:
    if _is_map(field):
        inner = _value_one(field.message_type.fields_by_name["value"])
        return lambda found: [(key, inner(found[key])) for key in found]
    one = _value_one(field)
    return (lambda found: [one(each) for each in found]) if _is_repeated(field) else one


def _value_one(field: Any) -> Convert:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda found: names.get(found, str(found))
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return lambda found: found
    if field.message_type.full_name == _TIMESTAMP:
        return lambda found: datetime.fromtimestamp(found.seconds, UTC).replace(microsecond=found.nanos // 1000)
    return _converter(field.message_type)


def _is_repeated(field: Any) -> bool:
    return field.is_repeated


def _is_map(field: Any) -> bool:
    message = field.message_type
    return message is not None and message.GetOptions().map_entry
