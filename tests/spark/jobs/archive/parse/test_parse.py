"""Bodies as columns: what parses, what does not and why, and schemas that cannot be used."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from twinlog.spark.errors import SparkSourceError
from twinlog.spark.jobs.archive.parse.parser import BodyColumns, ParsePlan, parse_plan, parsed_columns

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def split(plan: ParsePlan, *bodies: bytes) -> tuple[list[dict], dict[bytes, str]]:
    """The parsed columns of the good rows, and the errors of the others by their bodies."""
    batch = pa.record_batch({"n": range(len(bodies)), "body": pa.array(bodies, pa.binary())})
    good, bad = BodyColumns(plan).split(batch)
    assert sorted(good.column("n").to_pylist() + bad.column("n").to_pylist()) == list(range(len(bodies)))
    assert good.schema.names == ["n", "body", *parsed_columns(plan)]
    rows = [{name: row[name] for name in parsed_columns(plan)} for row in good.to_pylist()]
    return rows, {row["body"]: row["parseError"] for row in bad.to_pylist()}


def test_json_fields_become_columns_and_each_other_body_has_its_reason():
    plan = parse_plan(
        "json=id bigint, at timestamp, day_of date, paid decimal(5,2), items array<struct<sku:string,n:int>>, "
        "m map<string,double>, raw binary, ok boolean"
    )
    whole = {"id": 1, "at": "2026-11-15T13:00:00+01:00", "day_of": "2026-11-15", "paid": 1.25, "ok": True}
    whole |= {"items": [{"sku": "a", "n": 3, "x": 1}, {"sku": None}, None], "m": {"a": 1}, "raw": "aGk=", "more": []}
    bad = {
        b"nope": "JSON is malformed",
        b"": "truncated",
        b"[]": "Expected `object`, got `array`",
        b'{"id": "7"}': "Expected `int | null`, got `str` - at `$.id`",
        b'{"id": 9223372036854775808}': "<= 9223372036854775807",
        b'{"items": [{"n": 2147483648}]}': "at `$.items[0].n`",
        b'{"paid": 12345.678}': "Rescaling Decimal",
        b'{"at": 1700000000}': "Expected `datetime | null`, got `int`",
    }
    rows, errors = split(plan, json.dumps(whole).encode(), *bad, b'{"id": null}')
    assert rows[0] == {
        "id": 1,
        "at": NOON,
        "day_of": date(2026, 11, 15),
        "paid": Decimal("1.25"),
        "raw": b"hi",
        "ok": True,
        "items": [{"sku": "a", "n": 3}, {"sku": None, "n": None}, None],
        "m": [("a", 1.0)],
    }
    assert set(rows[1].values()) == {None}
    assert errors.keys() == bad.keys()
    for body, text in bad.items():
        assert text in errors[body], (body, errors[body])


def test_parsed_fields_may_go_into_one_column(tmp_path):
    (tmp_path / "order.ddl").write_text("topic string,\n  keys int\n")
    plan = parse_plan(f"json={tmp_path}/order.ddl", "order")
    assert parsed_columns(plan) == {"order": "struct<topic:string,keys:int>"}
    assert split(plan, b'{"topic": "t"}')[0] == [{"order": {"topic": "t", "keys": None}}]


ITEM = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": "shop.State"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "items", "type": {"type": "array", "items": ITEM}},
    ],
}


def test_avro_values_become_columns(tmp_path):
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    plan = parse_plan(f"avro={tmp_path}/order.avsc")
    value = {"id": 3, "who": None, "state": "PAID", "before": "NEW", "at": NOON, "paid": Decimal("3.25"), "uuid": "u-1"}
    value["items"] = [{"n": 1}]
    out = io.BytesIO()
    schema = json.loads(json.dumps(AVRO).replace(', "logicalType": "uuid"', ""))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    body = out.getvalue()
    rows, errors = split(plan, body, body[:-3], body + b"x", b"", b"hello world")
    assert rows == [value]
    assert "ends within a value" in errors[body[:-3]]
    assert "1 of" in errors[body + b"x"]
    assert len(errors) == 4


def protobuf_order(path) -> type:
    """An Order with an id, tags, a time, a big number and a map; returns its class."""
    files, field = descriptor_pb2.FileDescriptorSet(), descriptor_pb2.FieldDescriptorProto
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    dependency = ["google/protobuf/timestamp.proto"]
    file = files.file.add(name="order.proto", package="shop", syntax="proto3", dependency=dependency)
    order = file.message_type.add(name="Order")
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=one)
    order.field.add(name="labels", number=2, type=field.TYPE_STRING, label=many)
    time = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=3, type=field.TYPE_MESSAGE, type_name=time, label=one)
    order.field.add(name="big", number=4, type=field.TYPE_UINT64, label=one)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=one)
    name = ".shop.Order.CountsEntry"
    order.field.add(name="counts", number=5, type=field.TYPE_MESSAGE, type_name=name, label=many)
    path.write_bytes(files.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    for found in files.file:
        pool.Add(found)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_messages_become_columns(tmp_path):
    made = protobuf_order(tmp_path / "order.desc")
    plan = parse_plan(f"protobuf={tmp_path}/order.desc:shop.Order")
    message = made(id=5, labels=["a", "b"], big=2**64 - 1, counts={"x": 3})
    message.at.FromDatetime(NOON)
    body = message.SerializeToString()
    rows, errors = split(plan, body, made(id=1).SerializeToString(), b"hello world", body[:-1])
    assert rows[0] == {"id": 5, "labels": ["a", "b"], "at": NOON, "big": Decimal(2**64 - 1), "counts": [("x", 3)]}
    assert rows[1] == {"id": 1, "labels": [], "at": None, "big": 0, "counts": []}
    assert "not a shop.Order" in errors[b"hello world"]
    assert len(errors) == 2


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_no_body_is_lost_or_ends_the_task(bodies):
    for plan in (parse_plan("json=id bigint, d decimal(3,1)"), ParsePlan("avro", json.dumps(AVRO))):
        split_rows, errors = split(plan, *bodies)
        assert len(split_rows) + sum(bodies.count(body) for body in errors) == len(bodies)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jsn=a int", "there is no parser 'jsn' for --parse: did you mean 'json'"),
        ("json", "has no schema: give for example json='id bigint"),
        ("json=/no/such.ddl", "there is no such file"),
        ("json=topic string", "'topic' has the name of a message's column: --parse-into"),
        ("json=id int, ID int", "differ only in case"),
        ("avro=HERE/none.avsc", "cannot be read"),
        ("avro=HERE/bad.avsc", "the Avro schema cannot be used"),
        ("avro=HERE/union.avsc", "union of 2 types"),
        ("avro=HERE/loop.avsc", "contains itself"),
        ("avro=HERE/long.avsc", "is not a record"),
        ("protobuf=HERE/order.desc", "give FILE:MESSAGE"),
        ("protobuf=HERE/order.proto:shop.Order", "protoc --include_imports"),
        ("protobuf=HERE/order.desc:shop.Ordr", "did you mean 'shop.Order'"),
        ("protobuf=HERE/bad.avsc:shop.Order", "is not a descriptor set"),
    ],
)
def test_a_parser_that_cannot_be_used_is_refused_before_anything_starts(tmp_path, text, told):
    protobuf_order(tmp_path / "order.desc")
    loop = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    union = {"type": "record", "name": "U", "fields": [{"name": "a", "type": ["int", "string"]}]}
    for name, schema in (("bad", "nope"), ("loop", loop), ("union", union), ("long", "long")):
        data = schema if name == "bad" else json.dumps(schema)
        (tmp_path / f"{name}.avsc").write_text(data)
    with pytest.raises(SparkSourceError, match=told):
        parse_plan(text.replace("HERE", str(tmp_path)))
