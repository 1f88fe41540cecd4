"""The header of END_TRANSACTION decodes quickly to what the plain decoder reads."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.sends.end_headers import EndFields, decode_end_fields

FIELDS = {
    "topic": "T",
    "producerGroup": "PG",
    "tranStateTableOffset": "7",
    "commitLogOffset": "4711",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "7F00",
}
values = st.sampled_from(
    ["", "0", "8", "007", "-1", "-0", "+3", " 4", "1e3", "4.0", "1_0", "x", "true", "TRUE", "中", "٣", "9" * 18]
    + ["9" * 19, str(2**31), str(2**31 - 1)]
)
changes = st.dictionaries(st.sampled_from(list(FIELDS)), values, max_size=4)


def check(ours: EndFields, fields: dict[str, str] | None) -> None:
    plain = decode_fields(EndTransactionHeader, fields)
    assert (
        ours.producer_group,
        ours.tran_state_table_offset,
        ours.commit_log_offset,
        ours.commit_or_rollback,
        ours.from_transaction_check,
    ) == (
        plain.producer_group,
        plain.tran_state_table_offset,
        plain.commit_log_offset,
        plain.commit_or_rollback,
        bool(plain.from_transaction_check),
    )


@given(changes, st.sets(st.sampled_from(list(FIELDS)), max_size=1))
@example({"tranStateTableOffset": "1e3"}, set())
@example({"commitLogOffset": "4.0"}, set())
def test_a_text_map_is_read_as_the_plain_decoder_reads_it(changed, missing):
    fields = {name: value for name, value in {**FIELDS, **changed}.items() if name not in missing}
    quick = decode_end_fields(fields)
    if quick is not None:
        check(quick, fields)


def test_the_usual_text_map_is_decoded_quickly():
    assert decode_end_fields(FIELDS) is not None
