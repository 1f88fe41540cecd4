"""The findings of an audit, one row each, and the comparison of two records; no files, no sockets.

kind        meaning                                                                       counts as difference
missing     the master has a record that the replica has not                              yes
extra       the replica has a record that the master has not                              yes
different   both have a valid record there, with other content                            yes
corrupt     one side has bytes there that are not a valid record                          yes
segment     a file of the log is missing between others                                   yes
unit        a consume-queue unit that one side lacks, or that points elsewhere            yes
metadata    a topic, group, offset or version that is not the same                        yes
lag         bytes (or units) after the replica's end                                      with --strict
note        something to know: a log that begins later, unused bytes that differ          no
error       this pair, or a part of it, could not be compared                             exit status 2
compared    a range that was compared, and is in the summary only
result      one row per pair and audit: equal, different or not comparable
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import pyarrow as pa

from twinlog.wire.errors import WireError
from twinlog.wire.message import Message, decode_message

DIFFERENCES = ("missing", "extra", "different", "corrupt", "segment", "unit", "metadata")
_FIELDS = {
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "store_size": "storeSize",
    "body_crc": "bodyCRC",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "born_host": "bornHost",
    "store_timestamp": "storeTimestamp",
    "store_host": "storeHost",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
}
_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class Finding:
    """One row. `item` is the topic of a record, or the kind of metadata; `key` is its message id, or the row's key."""

    pair: str
    kind: str
    what: str = ""
    side: str | None = None  # the side at fault, if it is known
    item: str | None = None
    key: str | None = None
    field: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    size: int | None = None
    master_value: str | None = None
    replica_value: str | None = None


COLUMNS = {
    "pair": "string",
    "kind": "string",
    "what": "string",
    "side": "string",
    "item": "string",
    "key": "string",
    "field": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "commitLogOffset": "bigint",
    "bytes": "bigint",
    "masterValue": "string",
    "replicaValue": "string",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
_NAMES = [one.name for one in fields(Finding)]


def as_batch(findings: Iterable[Finding]) -> pa.RecordBatch:
    rows = [asdict(one) for one in findings]
    arrays = [
        pa.array([row[name] for row in rows], _ARROW[kind]) for name, kind in zip(_NAMES, COLUMNS.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def finding_of(pair: str, kind: str, record: bytes | memoryview, physical_offset: int, **more: str | None) -> Finding:
    """A finding about a record, with the topic, queue and id of that record."""
    try:
        message = decode_message(record, check_crc=False)
    except WireError:
        return Finding(pair, kind, physical_offset=physical_offset, size=len(record), **more)  # type: ignore[arg-type]
    return Finding(
        pair,
        kind,
        item=message.topic,
        key=message.message_id,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=physical_offset,
        size=message.store_size,
        **more,  # type: ignore[arg-type]
    )


def compare_records(
    pair: str, physical_offset: int, master: bytes | memoryview, replica: bytes | memoryview
) -> Finding | None:
    """The difference of two records at the same offset; None if they are equal."""
    if master == replica:
        return None
    ours, why = _decode(master)
    theirs, other_why = _decode(replica)
    if ours is None or theirs is None:
        at_fault = "both" if ours is theirs else "master" if ours is None else "replica"
        good = master if theirs is None and ours is not None else replica if theirs is not None else master
        return finding_of(pair, "corrupt", good, physical_offset, side=at_fault, what=why or other_why)
    names, left, right = differing_fields(ours, theirs)
    return finding_of(
        pair,
        "different",
        master,
        physical_offset,
        field=", ".join(names),
        what="both are valid records",
        master_value="; ".join(left),
        replica_value="; ".join(right),
    )


def differing_fields(ours: Message, theirs: Message) -> tuple[list[str], list[str], list[str]]:
    """(names, values of one, values of the other) of every field that differs."""
    names, left, right = [], [], []

    def note(name: str, one: object, other: object) -> None:
        names.append(name)
        left.append(f"{name}={one}")
        right.append(f"{name}={other}")

    for attribute, name in _FIELDS.items():
        one, other = getattr(ours, attribute), getattr(theirs, attribute)
        if one != other:
            note(name, one, other)
    if ours.body != theirs.body:
        at = next((n for n, (a, b) in enumerate(zip(ours.body, theirs.body, strict=False)) if a != b), 0)
        note("body", _excerpt(ours.body, at), _excerpt(theirs.body, at))
    for key in sorted(ours.properties.keys() | theirs.properties.keys()):
        one, other = ours.properties.get(key), theirs.properties.get(key)
        if one != other:
            note(f"properties.{key}", one, other)
    if not names:  # the same values in another order
        note("properties", "another order or separator", "another order or separator")
    return names, left, right


def _decode(record: bytes | memoryview) -> tuple[Message | None, str]:
    try:
        return decode_message(record), ""
    except WireError as error:
        return None, str(error).replace("record at byte 0: ", "").replace(" at byte 0", "")


def _excerpt(body: bytes, at: int) -> str:
    shown = body[at : at + _SHOWN_BYTES]
    return f"{len(body)} bytes, at {at} {shown!r}{'...' if len(body) > at + _SHOWN_BYTES else ''}"
