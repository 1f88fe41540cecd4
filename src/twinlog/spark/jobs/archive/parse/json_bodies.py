"""JSON bodies. A body is one object; fields that the schema does not name are ignored, a missing one is null.

Types are checked, not converted: "12" is not a number. Timestamps are ISO 8601 (without a zone: UTC), dates too, binary
is base64.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec

from twinlog.spark.ddl_types import column_types

if TYPE_CHECKING:
    import pyarrow as pa

    from twinlog.spark.jobs.archive.parse.parser import ParseBody, ParsePlan


def field_types(plan: ParsePlan) -> dict[str, pa.DataType]:
    return column_types(plan.schema)


def body_parser(plan: ParsePlan) -> ParseBody:
    return msgspec.json.Decoder(_object(field_types(plan))).decode


def _object(fields: dict[str, pa.DataType]) -> Any:
    members = {name: _python_type(kind) | None for name, kind in fields.items()}
    return TypedDict("Body", members, total=False)  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]


def _python_type(kind: pa.DataType) -> Any:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    if kinds.is_struct(kind):
        return _object({field.name: field.type for field in kind})
    if kinds.is_list(kind):
        return list[_python_type(kind.value_type) | None]
    if kinds.is_map(kind):
        return dict[_python_type(kind.key_type), _python_type(kind.item_type) | None]
    for fits, found in (
        (kinds.is_boolean, bool),
        (kinds.is_floating, float),
        (kinds.is_decimal, Decimal),
        (kinds.is_string, str),
        (kinds.is_binary, bytes),
        (kinds.is_date, date),
        (kinds.is_timestamp, datetime),
    ):
        if fits(kind):
            return found
    raise AssertionError(kind)
