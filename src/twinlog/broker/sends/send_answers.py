"""The answers to sends whose message was stored, written as text: all answers to one chunk are one piece of bytes.

`send` builds the same header from fields; a property test holds both equal byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import encode

from twinlog.broker.sends.pending_sends import CODES
from twinlog.store.log.append import PutStatus
from twinlog.telemetry.histograms import LARGE_BYTES, MEDIUM_BYTES
from twinlog.wire.codes import VERSION
from twinlog.wire.frame import encode_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlog.broker.sends.send_target import Target

RecordPlace = tuple[int, int, int]
"""physical offset, queue offset, size"""

BatchPlace = tuple[bytes, int, int]
"""physical offsets of all records, 8 bytes each; queue offset of the first; size of all"""

Unanswered = tuple["Target", int | str | None, str, int]
"""A send that was decoded: its target, opaque (None: a oneway), unique key as `json_texts` has it, end of its frame."""

_ANSWER_END = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'


def _end(remark: str | None) -> str:
    return _ANSWER_END if remark is None else f',"remark":{encode(remark).decode("latin-1")}{_ANSWER_END}'


_PREFIXES_MAX = 1024
_PREFIXES = [encode_prefix(length, 0).decode("latin-1") for length in range(_PREFIXES_MAX)]


def _start(status: PutStatus) -> str:
    return f'{{"code":{int(CODES[status])},"extFields":{{'


_STARTS = {status: _start(status) for status in CODES}
_OK, _OK_START = PutStatus.PUT_OK, _STARTS[PutStatus.PUT_OK]  # to look up an enum costs a fifth of a microsecond


def answers(
    sends: Sequence[Unanswered], places: Sequence[RecordPlace], status: PutStatus, remark: str | None = None
) -> bytes:
    """Count the sends whose message was stored, and answer those that are not oneway."""
    start, prefixes = _OK_START if status is _OK else _STARTS[status], _PREFIXES
    answer_end = _end(remark)
    large, medium = LARGE_BYTES, MEDIUM_BYTES
    texts: list[str] = []
    for (target, opaque, uniq_key, _), (physical_offset, queue_offset, size) in zip(sends, places, strict=False):
        counter = target.counter
        counter.count += 1
        counter.bytes += size
        if size > large:
            if size <= medium:
                counter.medium += 1
            else:
                counter.add_large(size)
        if opaque is None:
            continue
        answer = (
            f"{start}{target.answer_start}{physical_offset:016X}{target.answer_middle}{queue_offset}"
            f'","transactionId":"{uniq_key}"}},"flag":1,"language":"JAVA","opaque":{opaque}{answer_end}'
        )
        length = len(answer)
        texts.append(prefixes[length] if length < _PREFIXES_MAX else _prefix(length))
        texts.append(answer)
    return "".join(texts).encode("latin-1")  # a byte per character, in the prefixes too


def batch_answers(
    sends: Sequence[Unanswered], places: Sequence[BatchPlace], status: PutStatus, remark: str | None = None
) -> bytes:
    """The same for batches; each place is that of all records of one batch."""
    start, answer_end, texts = _STARTS[status], _end(remark), list[str]()
    for (target, opaque, uniq_key, _), (offsets, queue_offset, size) in zip(sends, places, strict=False):
        number = len(offsets) // 8
        target.counter.count += number
        target.counter.bytes += size
        if size > number * LARGE_BYTES:
            target.counter.add_large(-(-size // number), number)
        if opaque is None:
            continue
        ids = offsets.hex(",", 8).upper().replace(",", f",{target.host}")
        transaction = f'","transactionId":"{uniq_key}' if uniq_key else ""
        answer = (
            f"{start}{target.answer_start}{ids}{target.answer_middle}{queue_offset}{transaction}"
            f'"}},"flag":1,"language":"JAVA","opaque":{opaque}{answer_end}'
        )
        texts += (_prefix(len(answer)), answer)
    return "".join(texts).encode("latin-1")


def json_texts(sends: list[Unanswered], first: int = 0) -> None:
    """Write the unique keys of these sends, from number `first` on, as they stand in a JSON string, a byte a character.

    Nearly all keys are hexadecimal digits and stay what they are.
    """
    keys = "".join([send[2] for send in sends[first:]])
    if len(encode(keys)) != len(keys) + 2:  # some need escapes, or more than a byte
        for number in range(first, len(sends)):
            target, opaque, uniq_key, end = sends[number]
            sends[number] = target, opaque, encode(uniq_key).decode("latin-1")[1:-1], end


def _prefix(header_length: int) -> str:
    """The frame prefix of an answer, which has no body, with one character per byte."""
    return encode_prefix(header_length, 0).decode("latin-1")
