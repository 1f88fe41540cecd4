"""RocketMQ's message trace: what a client reports about its sends and receptions, as text in messages of a trace topic.

    record = field U+0001 field U+0001 ... U+0002        a body holds several records

    Pub             time region group topic id tags keys storeHost bodyBytes costMs type [offsetId] success [clientHost]
    SubBefore       time region group requestId id retries keys [clientHost]
    SubAfter        requestId id costMs success keys [code] [time group]
    EndTransaction  time region group topic id tags keys storeHost type transactionId state fromCheck
    Recall          time region group topic id success

The key of such a message is the id of the traced one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIELD_END, RECORD_END = "\x01", "\x02"
PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION, RECALL = "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record; what its kind does not have is empty, 0 or None."""

    kind: str
    message_id: str
    time_ms: int = 0  # when it began; of a SubAfter of old clients: unknown
    group: str = ""
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    body_bytes: int = 0
    cost_ms: int = 0
    success: bool | None = None
    retries: int = 0
    request_id: str = ""  # joins SubBefore and SubAfter
    transaction_state: str = ""


def decode_trace(body: bytes) -> list[TraceRecord]:
    """The records of a trace message; what cannot be read is left out, as Java does."""
    found = (_decode(text.split(FIELD_END)) for text in body.decode("utf-8", "replace").split(RECORD_END) if text)
    return [record for record in found if record is not None]


def _decode(parts: Sequence[str]) -> TraceRecord | None:
    try:
        reader = {
            PUB: _pub,
            SUB_BEFORE: _sub_before,
            SUB_AFTER: _sub_after,
            END_TRANSACTION: _end_transaction,
            RECALL: _recall,
        }.get(parts[0])
        return reader(parts) if reader is not None else None
    except (IndexError, ValueError):
        return None


def _pub(parts: Sequence[str]) -> TraceRecord:
    success = parts[12] if len(parts) == 13 else parts[13]  # 4.4 has no offset id
    return TraceRecord(
        PUB,
        parts[5],
        int(parts[1]),
        parts[3],
        parts[4],
        parts[6],
        parts[7],
        parts[8],
        int(parts[9]),
        int(parts[10]),
        success == "true",
    )


def _sub_before(parts: Sequence[str]) -> TraceRecord:
    keys = parts[7] if len(parts) > 7 else ""
    return TraceRecord(
        SUB_BEFORE, parts[5], int(parts[1]), parts[3], keys=keys, retries=int(parts[6]), request_id=parts[4]
    )


def _sub_after(parts: Sequence[str]) -> TraceRecord:
    time_ms, group = (int(parts[7]), parts[8]) if len(parts) > 8 else (0, "")
    keys = parts[5] if len(parts) > 5 else ""
    success = parts[4] == "true"
    return TraceRecord(
        SUB_AFTER, parts[2], time_ms, group, keys=keys, cost_ms=int(parts[3]), success=success, request_id=parts[1]
    )


def _end_transaction(parts: Sequence[str]) -> TraceRecord:
    return TraceRecord(
        END_TRANSACTION,
        parts[5],
        int(parts[1]),
        parts[3],
        parts[4],
        parts[6],
        parts[7],
        parts[8],
        transaction_state=parts[11],
    )


def _recall(parts: Sequence[str]) -> TraceRecord:
    return TraceRecord(RECALL, parts[5], int(parts[1]), parts[3], parts[4], success=parts[6] == "true")
