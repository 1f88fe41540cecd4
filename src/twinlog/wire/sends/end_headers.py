"""The header of END_TRANSACTION (37), decoded to the members that decide.

A fast path beside `command` and `fields`, which define what a header means: each transaction sends one. None is
returned for what only the plain decoder can read. A property test holds both equal.
"""

import msgspec

from twinlog.wire.command import FIELDS_MAX
from twinlog.wire.numbers import INT_MAX, Int, is_natural

END_START = b'{"code":37,'
_END_CODE = 37
_LONG_HEADER_BYTES = 4 * FIELDS_MAX  # a shorter header cannot have too many fields


class EndFields(msgspec.Struct, gc=False):
    """The members of END_TRANSACTION that decide."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool


UnhandledEnd = tuple[EndFields, bytes]
"""what a request says, and its header"""


class _Texts(msgspec.Struct, rename="camel", gc=False):
    producer_group: str
    tran_state_table_offset: str
    commit_log_offset: str
    commit_or_rollback: str
    from_transaction_check: str = ""


class _Header(msgspec.Struct, gc=False):
    code: Int
    opaque: Int
    flag: Int
    extFields: _Texts
    language: str | None = None
    version: Int = 0
    remark: str | None = None


_decode = msgspec.json.Decoder(_Header).decode


def decode_json_end(header: bytes, flag: int) -> EndFields | None:
    """What a JSON header says; None when it has another code or other flags, or needs the plain decoder."""
    try:
        command = _decode(header)
        if not header.isascii():
            header.decode()  # the text of members that were skipped is not checked yet
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors too
        return None
    if command.code != _END_CODE or command.flag != flag:
        return None
    if len(header) > _LONG_HEADER_BYTES and header.count(b":") > FIELDS_MAX:
        return None
    texts = command.extFields
    return _from_texts(
        texts.producer_group,
        texts.tran_state_table_offset,
        texts.commit_log_offset,
        texts.commit_or_rollback,
        texts.from_transaction_check,
    )


def decode_end_fields(fields: dict[str, str]) -> EndFields | None:
    """The members of a header's text map; None when one is missing, or needs the plain decoder."""
    return _from_texts(
        fields.get("producerGroup"),
        fields.get("tranStateTableOffset", ""),
        fields.get("commitLogOffset", ""),
        fields.get("commitOrRollback", ""),
        fields.get("fromTransactionCheck", ""),
    )


def _from_texts(
    group: str | None, table_offset: str, log_offset: str, decision: str, from_check: str
) -> EndFields | None:
    # msgspec would read "1e3" and "4.0" as numbers, which neither Java nor `fields` does.
    if group is None or not (is_natural(table_offset) and is_natural(log_offset) and is_natural(decision)):
        return None
    number = int(decision)
    if number > INT_MAX:
        return None
    return EndFields(group, int(table_offset), int(log_offset), number, from_check.lower() == "true")
