"""RocketMQ's message trace: lines that producers and consumers store in RMQ_SYS_TRACE_TOPIC. No I/O, no clock.

A line has fields with U+0001 between them and ends with U+0002. The message with the lines has as keys the ids and
keys of the messages that they are about, by which `mqadmin queryMsgTraceById` finds them.

    Pub             time  region group  topic id    tags    keys  store-host size ms    kind offset-id ok
    SubBefore       time  region group  request id  retries keys
    SubAfter        request id   ms     ok    keys  code    time  group
    EndTransaction  time  region group  topic id    tags    keys  store-host kind transaction state from-check
    Recall          time  region group  topic id    ok
"""

from collections.abc import Sequence
from dataclasses import dataclass

_FIELD_END, _LINE_END = "\x01", "\x02"
# Java: an absent text is the word null. An empty one at the end of a line would be lost by its decoder.
_ABSENT = "null"
CONSUMED, CONSUME_FAILED, CONSUME_RAISED = 0, 4, 2  # codes of SubAfter, as Java's ConsumeReturnType numbers them


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One line, and the words by which it is found."""

    line: str
    keys: tuple[str, ...]


def _line(*fields: object) -> str:
    return _FIELD_END.join(_text(field) for field in fields) + _LINE_END


def _text(field: object) -> str:
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field).replace(_FIELD_END, " ").replace(_LINE_END, " ") if field not in ("", None) else _ABSENT


def pub_record(
    *,
    started_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: Sequence[str],
    store_host: str,
    body_bytes: int,
    spent_ms: int,
    kind: int,
    offset_message_id: str,
    ok: bool,
) -> TraceRecord:
    """A message was sent."""
    line = _line(
        "Pub",
        started_ms,
        region,
        group,
        topic,
        message_id,
        tags,
        " ".join(keys),
        store_host,
        body_bytes,
        spent_ms,
        kind,
        offset_message_id,
        ok,
    )
    return TraceRecord(line, (message_id, *keys))


def sub_before_record(
    *, started_ms: int, region: str, group: str, request_id: str, message_id: str, retries: int, keys: Sequence[str]
) -> TraceRecord:
    """A listener is about to get a message."""
    line = _line("SubBefore", started_ms, region, group, request_id, message_id, retries, " ".join(keys))
    return TraceRecord(line, (message_id, *keys))


def sub_after_record(
    *,
    request_id: str,
    message_id: str,
    spent_ms: int,
    ok: bool,
    keys: Sequence[str],
    code: int,
    ended_ms: int,
    group: str,
) -> TraceRecord:
    """A listener has returned; `request_id` is that of the record before it."""
    line = _line("SubAfter", request_id, message_id, spent_ms, ok, " ".join(keys), code, ended_ms, group)
    return TraceRecord(line, (message_id, *keys))


def end_transaction_record(
    *,
    ended_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: Sequence[str],
    store_host: str,
    transaction_id: str,
    state: str,
    from_check: bool,
) -> TraceRecord:
    """A producer has ended a transaction; `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, as Java spells it."""
    text, kind = " ".join(keys), 2
    line = _line(
        "EndTransaction",
        ended_ms,
        region,
        group,
        topic,
        message_id,
        tags,
        text,
        store_host,
        kind,
        transaction_id,
        state,
        from_check,
    )
    return TraceRecord(line, (message_id, *keys))


def recall_record(*, at_ms: int, region: str, group: str, topic: str, message_id: str, ok: bool) -> TraceRecord:
    """A producer has recalled a message that waited for its time."""
    return TraceRecord(_line("Recall", at_ms, region, group, topic, message_id, ok), (message_id,))


def gather(records: Sequence[TraceRecord], bytes_max: int) -> list[tuple[str, list[str]]]:
    """(lines, keys) of as few messages as possible, each of about `bytes_max` at most."""
    parts: list[tuple[str, list[str]]] = []
    lines, keys, size = "", dict[str, None](), 0
    for record in records:
        words = [word for key in record.keys for word in key.split()]  # senders in other languages may have odd ids
        if sum(len(word.encode()) + 1 for word in words) > bytes_max:
            words = []  # more than properties can hold: the record is stored, and found by time
        own = 4 * len(record.line) + sum(4 * len(word) + 1 for word in words)
        if lines and size + own > bytes_max:
            parts.append((lines, list(keys)))
            lines, keys, size = "", dict[str, None](), 0
        lines, size = lines + record.line, size + own
        keys |= dict.fromkeys(words)
    return [*parts, (lines, list(keys))] if lines else parts
