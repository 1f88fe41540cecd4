"""What `--parse` asks for, and a batch of messages split into rows that parse and rows that do not.

    json=id bigint, name string        columns as DDL, or the name of a file that holds them
    avro=orders.avsc                   a schema in Avro's JSON; a body is one value, without a header
    protobuf=orders.desc:shop.Order    a descriptor set (protoc --include_imports --descriptor_set_out) and a message

The schema travels to the tasks as bytes, so only the driver needs the file.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlog.spark.ddl_types import column_types, type_text
from twinlog.spark.errors import BadOption, BadSchema, nearest
from twinlog.spark.schema import MESSAGE_COLUMNS, Columns

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = ("json", "avro", "protobuf")
ERROR_COLUMN = "parseError"
_ERROR_CHARS_MAX = 500
_INTO_EXAMPLE = "--parse-into order puts all parsed columns into one column of that name"
ParseBody = Callable[[bytes], dict[str, Any]]
"""The fields of a body; BodyError, ValueError and the like if it does not parse."""


class BodyError(ValueError):
    """A body does not fit the schema."""


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """How bodies are parsed; a value that travels to the tasks."""

    kind: str
    schema: str  # DDL text, Avro's JSON, or a descriptor set in base64
    message: str = ""  # of Protobuf
    into: str = ""  # the column that holds all fields; without it, each field is a column

    def digest(self) -> str:
        """Two plans with the same digest split the same bodies in the same way."""
        return hashlib.sha256(repr((self.kind, self.schema, self.message, self.into)).encode()).hexdigest()[:16]


def parse_plan(text: str, into: str | None = None) -> ParsePlan:
    """The plan that an option asks for; BadOption or BadSchema if it cannot be used."""
    kind, equals, rest = text.partition("=")
    kind, rest = kind.strip(), rest.strip()
    if kind not in KINDS:
        raise BadOption(f"there is no parser {kind!r} for --parse: {nearest(kind, KINDS)}")
    if not equals or not rest:
        wanted = {"json": "id bigint, name string", "avro": "orders.avsc", "protobuf": "orders.desc:shop.Order"}[kind]
        raise BadOption(f"--parse {text!r} has no schema: give for example {kind}={wanted!r}")
    if kind == "json":
        plan = ParsePlan(kind, _text_or_file(rest), into=into or "")
    elif kind == "avro":
        plan = ParsePlan(kind, _read(rest).decode(errors="replace"), into=into or "")
    else:
        plan = _protobuf_plan(rest, into or "")
    parsed_columns(plan)
    return plan


def parsed_columns(plan: ParsePlan) -> Columns:
    """The columns that parsing adds, with their types as DDL; BadSchema if they cannot be used."""
    fields = field_types(plan)
    if not fields:
        raise BadSchema(f"the {plan.kind} schema has no field: there is nothing to parse")
    if plan.into:
        import pyarrow as pa

        fields = {plan.into: pa.struct([pa.field(name, kind) for name, kind in fields.items()])}
    taken = {name.lower(): name for name in (*MESSAGE_COLUMNS, "day", ERROR_COLUMN)}
    seen: dict[str, str] = {}
    for name in fields:
        if name.lower() in taken:
            raise BadSchema(f"the parsed column {name!r} has the name of a message's column: {_INTO_EXAMPLE}")
        if name.lower() in seen:
            raise BadSchema(f"the parsed columns {seen[name.lower()]!r} and {name!r} differ only in case: rename one")
        seen[name.lower()] = name
    return {name: type_text(kind) for name, kind in fields.items()}


def field_types(plan: ParsePlan) -> dict[str, pa.DataType]:
    """The fields of the schema itself."""
    if plan.kind == "json":
        return column_types(plan.schema)
    return _parser_module(plan).field_types(plan)


def body_parser(plan: ParsePlan) -> ParseBody:
    """The function that parses one body."""
    return _parser_module(plan).body_parser(plan)


class BodyColumns:
    """Turns bodies into columns; made once for each task."""

    def __init__(self, plan: ParsePlan) -> None:
        import pyarrow as pa

        self._plan = plan
        self._parse = body_parser(plan)
        self._type = pa.struct([pa.field(name, kind) for name, kind in field_types(plan).items()])

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows whose bodies parse, with the new columns, and the others, with the error; together all rows."""
        import pyarrow as pa

        values, errors = self._values(batch.column("body").to_pylist())
        good = [number for number, error in enumerate(errors) if error is None]
        parsed = pa.array([values[number] for number in good], self._type)
        rows = batch.take(pa.array(good, pa.int64())) if len(good) < batch.num_rows else batch
        if self._plan.into:
            rows = rows.append_column(self._plan.into, parsed)
        else:
            for name, column in zip((field.name for field in self._type), parsed.flatten(), strict=True):
                rows = rows.append_column(name, column)
        bad = [number for number, error in enumerate(errors) if error is not None]
        others = batch.take(pa.array(bad, pa.int64()))
        return rows, others.append_column(ERROR_COLUMN, pa.array([errors[number] for number in bad], pa.string()))

    def _values(self, bodies: Sequence[bytes | None]) -> tuple[list[dict | None], list[str | None]]:
        import pyarrow as pa

        values: list[dict | None] = []
        errors: list[str | None] = []
        for body in bodies:
            try:
                values.append(self._parse(body or b""))
                errors.append(None)
            except Exception as error:  # whatever a parser raises for bytes that anybody may have sent
                values.append(None)
                errors.append(_error_text(error))
        try:
            pa.array(values, self._type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            # Some value does not fit its Arrow type, for example a decimal with too many digits: find the rows.
            for number, value in enumerate(values):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    errors[number] = errors[number] or _error_text(error)
        return values, errors


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _ERROR_CHARS_MAX else text[:_ERROR_CHARS_MAX] + " ..."


def _parser_module(plan: ParsePlan) -> Any:
    name = {"json": "json_bodies", "avro": "avro_bodies", "protobuf": "protobuf_bodies"}[plan.kind]
    try:
        return importlib.import_module(f"twinlog.spark.jobs.archive.parse.{name}")
    except ModuleNotFoundError as error:
        raise BadOption(f"--parse {plan.kind} needs {error.name}: pip install 'twinlog[parse]'") from error


def _text_or_file(text: str) -> str:
    """A file of that name if there is one, else the text itself."""
    try:
        if "\n" not in text and Path(text).is_file():
            return _read(text).decode()
    except (OSError, ValueError):  # too long for a name
        pass
    if " " not in text and ("/" in text or text.endswith((".ddl", ".sql", ".txt", ".json"))):
        raise BadOption(f"--parse json={text}: there is no such file; give a file or columns such as 'id bigint'")
    return text


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadOption(f"the schema {path} cannot be read ({error.strerror}): give the path of a file") from error


def _protobuf_plan(text: str, into: str) -> ParsePlan:
    path, colon, message = text.rpartition(":")
    if not colon or not path or not message:
        raise BadOption(f"--parse protobuf={text}: give FILE:MESSAGE, for example orders.desc:shop.Order")
    if path.endswith(".proto"):
        made = path.removesuffix(".proto") + ".desc"
        command = f"protoc --include_imports --descriptor_set_out={made} {path}"
        raise BadOption(f"{path} is not compiled: run `{command}`, then give protobuf={made}:{message}")
    return ParsePlan("protobuf", base64.b64encode(_read(path)).decode(), message, into)
