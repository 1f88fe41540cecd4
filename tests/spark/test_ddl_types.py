"""Types as DDL and as Arrow, and back."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.spark.ddl_types import arrow_type, column_types, type_text
from twinlog.spark.errors import BadSchema
from twinlog.spark.schema import MESSAGE_COLUMNS

SIMPLE = st.sampled_from(
    (
        *(pa.string(), pa.binary(), pa.int32(), pa.int64(), pa.bool_(), pa.float32(), pa.float64(), pa.date32()),
        *(pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 38)),
    )
)
NAMES = st.text(min_size=1, max_size=5).filter(lambda name: name == name.strip())
TYPES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(SIMPLE, inner).map(lambda both: pa.map_(*both)),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda found: pa.struct(list(found.items()))),
    ),
    max_leaves=5,
)


@settings(max_examples=50)
@given(TYPES)
def test_a_type_is_the_same_after_being_written_and_read(kind):
    assert arrow_type(type_text(kind)).equals(kind)


def test_columns_as_people_write_them():
    found = column_types("id BIGINT NOT NULL COMMENT 'a, b', `order no` string,n smallint, x array<struct<a:int>>")
    assert {name: type_text(kind) for name, kind in found.items()} == {
        "id": "bigint",
        "order no": "string",
        "n": "int",
        "x": "array<struct<a:int>>",
    }
    assert all(type_text(arrow_type(kind)) == kind for kind in MESSAGE_COLUMNS.values())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id bigit", "did you mean 'bigint'"),
        ("id", "the end where a type is expected"),
        ("id int,", "the end where the name of a column is expected"),
        ("a array<int", "the end where '>' is expected"),
        ("a int b int", "'b' where ',' is expected"),
        ("a decimal(50,2)", "1 to 38 digits"),
        ("a int, a string", "the column 'a' twice"),
        ("{id: int}", r"'\{' where the name of a column"),
    ],
)
def test_a_schema_that_cannot_be_read_names_the_place(text, told):
    with pytest.raises(BadSchema, match=told):
        column_types(text)
