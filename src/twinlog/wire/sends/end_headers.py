"""The header of END_TRANSACTION (37), decoded to the members that decide.

A fast path beside `fields`, which defines what a header means: each transaction sends one. None is returned for what
only the plain decoder can read. A property test holds both equal.
"""

import msgspec

from twinlog.wire.numbers import INT_MAX, is_natural


class EndFields(msgspec.Struct, gc=False):
    """The members of END_TRANSACTION that decide."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool


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
