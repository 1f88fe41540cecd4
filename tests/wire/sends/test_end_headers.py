"""The header of END_TRANSACTION decodes quickly to what the plain decoder reads."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.wire.command import FIELDS_MAX, Command, decode_header, encode_header
from twinlog.wire.errors import HeaderError
from twinlog.wire.fields import decode_fields
from twinlog.wire.frame import JSON
from twinlog.wire.headers import EndTransactionHeader
from twinlog.wire.sends.end_headers import EndFields, decode_end_fields, decode_json_end

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
    [
        "",
        "0",
        "8",
        "007",
        "-1",
        "-0",
        "+3",
        " 4",
        "1e3",
        "4.0",
        "1_0",
        "x",
        "true",
        "TRUE",
        "中",
        "٣",
        "9" * 18,
        "9" * 19,
        str(2**31),
        str(2**31 - 1),
    ]
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


@given(changes, st.integers(0, 3))
@example({"tranStateTableOffset": "1e3"}, 2)
def test_a_json_header_is_read_as_the_plain_decoder_reads_it(changed, flag):
    check_json(encode_header(Command(37, 5, flag, fields={**FIELDS, **changed})))


@given(st.integers(0, 2**16), st.integers(0, 255))
def test_a_damaged_byte_is_read_alike_or_left_to_the_plain_decoder(place, byte):
    header = bytearray(encode_header(Command(37, 5, 2, fields=FIELDS)))
    header[place % len(header)] = byte
    try:
        decode_header(bytes(header), JSON)
    except HeaderError:
        assert decode_json_end(bytes(header), 2) is None
    else:
        check_json(bytes(header))


def check_json(header: bytes) -> None:
    quick = decode_json_end(header, 2)
    if quick is not None:
        command = decode_header(header, JSON)
        assert (command.code, command.flag) == (37, 2)
        check(quick, command.fields)


def test_the_usual_header_is_decoded_quickly_and_others_are_not():
    assert decode_end_fields(FIELDS) is not None
    assert decode_json_end(encode_header(Command(37, 5, 2, fields=FIELDS)), 2) == decode_end_fields(FIELDS)
    assert decode_json_end(encode_header(Command(37, 5, 0, fields=FIELDS)), 2) is None
    assert decode_json_end(encode_header(Command(38, 5, 2, fields=FIELDS)), 2) is None
    many = {f"x{number}": "1" for number in range(FIELDS_MAX + 1)}
    assert decode_json_end(encode_header(Command(37, 5, 2, fields={**many, **FIELDS})), 2) is None
