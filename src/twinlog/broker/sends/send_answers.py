"""The answers to sends whose message was stored, written as text: all answers to one chunk are one piece of bytes.

`send` builds the same header from fields; a property test holds both equal byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from twinlog.broker.sends.pending_sends import CODES
from twinlog.store.log.append import PutStatus
from twinlog.wire.codes import VERSION
from twinlog.wire.frame import encode_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlog.broker.sends.send_target import Target

RecordPlace = tuple[int, int, int]
"""physical offset, queue offset, size"""

Unanswered = tuple["Target", int | str | None, str, int]
"""A send that was decoded: its target, opaque (None: a oneway), unique key, end of its frame."""

_ANSWER_END = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_PREFIXES = [encode_prefix(length, 0).decode("latin-1") for length in range(1024)]


def _start(status: PutStatus) -> str:
    return f'{{"code":{int(CODES[status])},"extFields":{{'


_STARTS = {status: _start(status) for status in CODES}


def answers(sends: Sequence[Unanswered], places: Sequence[RecordPlace], status: PutStatus) -> bytes:
    """Count the sends whose message was stored, and answer those that are not oneway."""
    start, texts = _STARTS[status], list[str]()
    all_keys = "".join([send[2] for send in sends])
    if len(msgspec.json.encode(all_keys)) != len(all_keys) + 2:  # some need escapes, or more than a byte
        sends = [(target, opaque, _json_text(uniq_key), end) for target, opaque, uniq_key, end in sends]
    for (target, opaque, uniq_key, _), (physical_offset, queue_offset, size) in zip(sends, places, strict=False):
        counter = target.counter
        counter.count += 1
        counter.bytes += size
        if opaque is None:
            continue
        answer = (
            f"{start}{target.answer_start}{physical_offset:016X}{target.answer_middle}{queue_offset}"
            f'","transactionId":"{uniq_key}"}},"flag":1,"language":"JAVA","opaque":{opaque}{_ANSWER_END}'
        )
        texts += (_prefix(len(answer)), answer)
    return "".join(texts).encode("latin-1")  # a byte per character, in the prefixes too


def _json_text(value: str) -> str:
    """`value` as it stands in a JSON string, with one character per byte."""
    return msgspec.json.encode(value).decode("latin-1")[1:-1]


def _prefix(header_length: int) -> str:
    """The frame prefix of an answer, which has no body, with one character per byte."""
    return _PREFIXES[header_length] if header_length < 1024 else encode_prefix(header_length, 0).decode("latin-1")
