"""Damaged bytes in the middle of the log: copied aside, and replaced so that every reader can go on.

Java's recovery ends the log at the first invalid record and deletes everything behind it. A
damaged range is therefore not left as it is, and must not become a blank record either, which sends Java
to the next file. What takes its place:

    up to the end of a file   one blank record: readers go on with the next file
    inside a file             fillers: well-formed records of an internal topic, body of zeros, valid CRC,
                              with the transaction bits of a rolled-back message. No dispatcher, Java's or
                              ours, puts such a record into a queue or the index.

Queue units that pointed into the range are made to point at the queue's next message, or without one at the
message before, so that offsets stay true: a consumer that asks for a lost message gets its neighbour, and
no number is given to two messages. The original bytes are kept in
`<store>/quarantine/`, with a note in JSON beside them; nothing reads them but people.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from twinlog.base.atomic_file import replace_file
from twinlog.store.file_ops import FILE_OPS, FileOps
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.queues.batch_consume_queue import BatchConsumeQueue
from twinlog.store.queues.consume_queue import PLACEHOLDER
from twinlog.store.queues.queue_table import Queue, QueueTable
from twinlog.telemetry.log import get_logger
from twinlog.wire.message import Message, encode_message
from twinlog.wire.record_layout import BLANK_BYTES, MAGIC_BLANK, RECORD_BYTES_MIN, SIZE_AND_MAGIC
from twinlog.wire.values.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

log = get_logger(__name__)

QUARANTINE_TOPIC = "TWINLOG_QUARANTINE"
FILLER_BYTES_MIN = RECORD_BYTES_MIN + 1  # a topic has at least one letter
FILLER_BYTES_MAX = 4 * 1024 * 1024
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of the log that held no valid record, and what was done about it."""

    begin: int
    end: int
    reason: str
    torn_tail: bool = False  # at the end of the log: cut off instead of replaced
    saved_as: str = ""


def plan_fillers(begin: int, end: int, starts: Sequence[int] = ()) -> list[tuple[int, int]]:
    """(offset, size) of records that exactly cover the range, none larger than a message may be.

    A filler begins at each of `starts`, where lost records began, as far as there is room: index entries of
    Java's may still point there. A range too small for a record gives none; that cannot come from
    damage between two whole records.
    """
    if end - begin < FILLER_BYTES_MIN:
        return []
    edges = [begin]
    for start in sorted(starts):
        if start - edges[-1] >= FILLER_BYTES_MIN and end - start >= FILLER_BYTES_MIN:
            edges.append(start)
    plan = []
    for first, last in pairwise([*edges, end]):
        count = -(-(last - first) // FILLER_BYTES_MAX)
        parts = [first + (last - first) * number // count for number in range(count + 1)]
        plan += [(at, after - at) for at, after in pairwise(parts)]
    return plan


def encode_filler(physical_offset: int, size: int, store_timestamp: int) -> bytes:
    """A record of exactly `size` bytes that readers step over."""
    topic = QUARANTINE_TOPIC[: size - RECORD_BYTES_MIN]
    return encode_message(
        Message(
            topic=topic,
            body=bytes(size - RECORD_BYTES_MIN - len(topic)),
            physical_offset=physical_offset,
            sys_flag=TRANSACTION_ROLLBACK,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
        )
    )


def is_filler(message: Message) -> bool:
    """Whether it stands in the place of a record that a broker has lost."""
    is_rollback = message.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
    return is_rollback and QUARANTINE_TOPIC.startswith(message.topic)


def save_bytes(root: Path, commit_log: CommitLog, damage: Damage, ops: FileOps = FILE_OPS) -> str:
    """Copy the range into the quarantine directory, durably; returns the file's path."""
    path = note_path(root, damage.begin, damage.end).with_suffix(".bytes")
    ops.make_directory(path.parent)
    descriptor = ops.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        for segment, first, last in commit_log.ranges(damage.begin, damage.end):
            for at in range(first, last, _CHUNK):
                data = segment.view(at, min(_CHUNK, last - at))
                if bytes(data).strip(b"\0"):
                    ops.write(descriptor, data, segment.base + at - damage.begin)
        ops.flush(descriptor)
    finally:
        os.close(descriptor)
    action = "cut off: no valid record follows" if damage.torn_tail else "replaced by filler records"
    write_note(root, damage.begin, damage.end, damage.reason, action, ops)
    return str(path)


def keep_bytes(root: Path, begin: int, data: bytes, reason: str, action: str, ops: FileOps = FILE_OPS) -> None:
    """The same for bytes that are at hand, of one record."""
    path = note_path(root, begin, begin + len(data)).with_suffix(".bytes")
    ops.make_directory(path.parent)
    descriptor = ops.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        ops.write(descriptor, data, 0)
        ops.flush(descriptor)
    finally:
        os.close(descriptor)
    write_note(root, begin, begin + len(data), reason, action, ops)


def note_path(root: Path, begin: int, end: int) -> Path:
    """Where the note on the bytes from `begin` to `end` is."""
    return root / "quarantine" / f"{begin:020d}-{end:020d}.json"


def write_note(root: Path, begin: int, end: int, reason: str, action: str, ops: FileOps = FILE_OPS) -> None:
    """Say beside the bytes what was wrong and what was done, durably."""
    path = note_path(root, begin, end)
    note = {"physical_offset": begin, "size": end - begin, "reason": reason, "action": action}
    replace_file(path, [f"{json.dumps(note, indent=2)}\n".encode()], ops.modes)
    ops.flush_directory(path.parent)


def replace_bytes(commit_log: CommitLog, damage: Damage, store_timestamp: int, starts: Sequence[int] = ()) -> None:
    """Overwrite the range with records that every reader steps over; `starts` are places of lost records."""
    for segment, first, last in commit_log.ranges(damage.begin, damage.end):
        segment.secure()
        if last == segment.size and last - first >= BLANK_BYTES:
            segment.map[first:last] = bytes(last - first)
            SIZE_AND_MAGIC.pack_into(segment.map, first, last - first, MAGIC_BLANK)
        else:
            for offset, size in plan_fillers(segment.base + first, segment.base + last, starts):
                at = offset - segment.base
                segment.map[at : at + size] = encode_filler(offset, size, store_timestamp)
        segment.flush()


def redirect_units(queues: QueueTable, begin: int, end: int) -> list[int]:
    """Make queue units that point into the range point at a neighbour; returns where they pointed."""
    lost: list[int] = []
    for queue in queues.queues():
        if queue.end_physical > begin:
            lost += _redirect(queue, begin, end)
    queues.files.flush()
    return lost


def _redirect(queue: Queue, begin: int, end: int) -> list[int]:
    def physical_offset(unit: int) -> int:
        return int.from_bytes(queue.read(unit, 1)[:8], "big", signed=True)

    oldest = queue.min_unit if isinstance(queue, BatchConsumeQueue) else queue.min
    first = bisect_left(range(queue.end), begin, lo=oldest, key=physical_offset)
    last = bisect_left(range(queue.end), end, lo=first, key=physical_offset)
    if first == last:
        return []
    lost = [physical_offset(unit) for unit in range(first, last)]
    rest = bytes(queue.read(last, queue.end - last))
    if not isinstance(queue, BatchConsumeQueue):  # whose units carry their own offsets, so that none is missed
        before = queue.read(first - 1, 1) if first > oldest else PLACEHOLDER
        rest = (rest[: queue.UNIT_BYTES] or before) * (last - first) + rest
    queue.cut(first)
    tail: bytearray = queue.tail
    tail += rest
    queue.write()
    queue.recover()
    log.error("units of lost messages redirected", topic=queue.topic, queue_id=queue.queue_id, count=len(lost))
    return lost
