"""Headers of signed sends: the flat form of `send_headers`, and what a signature covers: the values of all fields.

A fast path beside `command` and `security.signatures`. None is returned for a header that is not a send's, or that only
the plain decoder can read; a property test holds both equal.

A header with the usual names only is decoded to a struct whose fields are in the order of the signature, so that its
values, one after the other, are the signed text. Others are decoded to a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from twinlog.wire.command import FIELDS_MAX, decode_header
from twinlog.wire.errors import HeaderError
from twinlog.wire.frame import BINARY
from twinlog.wire.numbers import LONG_MAX, LONG_MIN, Int
from twinlog.wire.sends.send_headers import LONG_NAMES, SHORT_NAMES, FlatSend

SIGNATURE, ACCESS_KEY = "Signature", "AccessKey"
_STARTS = (b'{"code":310,', b'{"code":320,', b'{"code":10,')
_ORDERS_MAX = 1024  # of field names; when there are more, all are dropped
_BINARY_CODES = (b"\x01\x36", b"\x01\x40", b"\x00\x0a")

SignedSend = tuple[FlatSend, dict[str, str]]

Signed = tuple[str, str, str]
"""account, signature, signed text without the body"""


class _Header(msgspec.Struct, gc=False):
    code: Int
    opaque: Int
    extFields: dict[str, str]
    flag: Int = 0
    language: str | None = None
    version: Int = 0
    remark: str | None = None


class _Names:
    def __init__(self, names: dict[str, str]) -> None:
        self.constants = itemgetter(
            *(names[name] for name in ("topic", "default_topic_queue_nums", "queue_id", "sys_flag", "flag"))
        )
        self.others = {names["producer_group"], names["default_topic"]}  # needed, and not used
        self.born, self.properties = names["born_timestamp"], names["properties"]
        self.reconsume_times, self.batch = names["reconsume_times"], names["batch"]


_LONG, _SHORT = _Names(LONG_NAMES), _Names(SHORT_NAMES)
_NAMES = {10: _LONG, 310: _SHORT, 320: _SHORT}
_decode = msgspec.json.Decoder(_Header).decode


def _usual_fields(names: Mapping[str, str], more: tuple[str, ...]) -> type:
    """A struct of all fields that usual clients send, in the order of the signature, which itself comes last."""
    needed = {ACCESS_KEY, *(names[name] for name in _NEEDED)}
    optional = {"SecurityToken", *more, *names.values()} - needed
    fields = [(name, str) if name in needed else (name, str, "") for name in sorted(needed | optional)]
    return msgspec.defstruct("_Usual", [*fields, (SIGNATURE, str)], kw_only=True, gc=False, forbid_unknown_fields=True)


_NEEDED = (
    "producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag", "flag",
    "born_timestamp",
)  # fmt: skip


class _UsualHeader:
    """Decodes headers of one code whose fields all have usual names."""

    def __init__(self, code: int, names: Mapping[str, str], more: tuple[str, ...]) -> None:
        self.code = code
        fields: Any = _usual_fields(names, more)
        header = msgspec.defstruct(
            "_UsualHeader",
            [
                ("code", Int),
                ("opaque", Int),
                ("extFields", fields),
                ("flag", Int, 0),
                ("language", str | None, None),
                ("version", Int, 0),
                ("remark", str | None, None),
            ],
            gc=False,
        )
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(header).decode
        at = {name: place for place, name in enumerate(fields.__struct_fields__)}
        wanted = ("topic", "default_topic_queue_nums", "queue_id", "sys_flag", "flag", "reconsume_times", "batch")
        self.constants = itemgetter(*(at[names[name]] for name in wanted))
        self.born, self.properties, self.account = at[names["born_timestamp"]], at[names["properties"]], at[ACCESS_KEY]


_USUAL_SHORT = _UsualHeader(310, SHORT_NAMES, ("k", "l", "n"))
_USUAL_LONG = _UsualHeader(10, LONG_NAMES, ("unitMode", "maxReconsumeTimes", "bname"))
_USUAL = {b'{"code":310': _USUAL_SHORT, b'{"code":10,': _USUAL_LONG}


def decode_usual_json(header: bytes) -> tuple[FlatSend, Signed] | None:
    """The send in a JSON header with usual fields only, and what is signed; None for any other header."""
    usual = _USUAL.get(header[:11])
    if usual is None:
        return None
    try:
        command = usual.decode(header)
        values = astuple(command.extFields)
        born = int(values[usual.born])
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors too
        return None
    constants = usual.constants(values)
    if not constants[5] or not constants[6] or command.code != usual.code or not LONG_MIN <= born <= LONG_MAX:
        return None  # a field that is not there, or is empty: the other decoder distinguishes them
    flat = command.opaque, command.flag, constants, born, values[usual.properties]
    return flat, (values[usual.account], values[-1], "".join(values[:-1]))


def decode_signed_json(header: bytes) -> SignedSend | None:
    """The send that a JSON header describes, and its fields."""
    if not header.startswith(_STARTS):
        return None
    try:
        command = _decode(header)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors too
        return None
    return _flat(command.code, command.opaque, command.flag, command.extFields)


def decode_signed_binary(header: bytes) -> SignedSend | None:
    """The send that a binary header describes, and its fields."""
    if header[:2] not in _BINARY_CODES:
        return None
    try:
        command = decode_header(header, BINARY)
    except HeaderError:
        return None
    if command.remark is not None or command.fields is None:
        return None
    return _flat(command.code, command.opaque, command.flag, command.fields)


def _flat(code: int, opaque: int, flag: int, fields: dict[str, str]) -> SignedSend | None:
    names = _NAMES.get(code)
    if names is None or len(fields) > FIELDS_MAX:
        return None
    try:
        topic, queues, queue_id, sys_flag, message_flag = names.constants(fields)
        born = int(fields[names.born])
    except (KeyError, ValueError):
        return None
    if not LONG_MIN <= born <= LONG_MAX or not names.others <= fields.keys():
        return None
    get = fields.get
    constants = (
        topic, queues, queue_id, sys_flag, message_flag, get(names.reconsume_times, "0"), get(names.batch, "false"),
    )  # fmt: skip
    return (opaque, flag, constants, born, get(names.properties, "")), fields


class SignedOrder:
    """The values that a signature covers, in their order; the order of the same names is found once."""

    def __init__(self) -> None:
        self._orders: dict[tuple[str, ...], Callable[[dict[str, str]], tuple[str, ...]]] = {}

    def values(self, fields: dict[str, str]) -> str:
        names = tuple(fields)
        order = self._orders.get(names)
        if order is None:
            order = self._learn(names)
        return "".join(order(fields))

    def _learn(self, names: tuple[str, ...]) -> Callable[[dict[str, str]], tuple[str, ...]]:
        if len(self._orders) >= _ORDERS_MAX:
            self._orders.clear()
        order = itemgetter(*sorted(name for name in names if name != SIGNATURE))  # a send has more than one
        self._orders[names] = order
        return order
