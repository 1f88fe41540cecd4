"""Whether a twin's bytes are the very record that is damaged here: decided without I/O.

The checksum at the end of the damaged record (`record_crc`) is the proof: if the twin's record agrees with that one, it
is what was written here. Where the checksum itself is damaged, or there is none, the records behind the place prove it:

    place      damaged    damaged    whole
    | record   | record   | record   | record       this log
    | asked    | asked    | asked    | equal        the twin's: the logs are one at this record, and so before it

Records of the twin are asked for until one is proven by its checksum, or equal to a whole record of this log. Logs of
one name differ in their tails only, and each record has the address of the broker that stored it. So an equal record
proves that everything before it is the same history, and that the records in between have these sizes. At the end of
the log no record follows: there, the twin must be known to hold these bytes by its link in this epoch.

A record without a checksum of its own has one of its body only, so all its other bytes must be those that are here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from twinlog.replication.errors import ReplicationError
from twinlog.store.log.checked_log import is_whole
from twinlog.store.log.record_crc import CRC_PROPERTY_BYTES, has_valid_crc
from twinlog.store.recovery.quarantine import is_filler
from twinlog.wire.errors import RecordError
from twinlog.wire.message import Message, decode_message
from twinlog.wire.record_layout import (
    BLANK_BYTES,
    FIELD_AT,
    HEAD_BYTES,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
    V6_EXTRA_BYTES,
    is_blank,
)
from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

RECORDS_MAX = 64  # side by side: more is a bad disk, which `twinlog store repair` fills again
BYTES_MAX = 16 * 1024 * 1024
_BODY_CRC_AT = FIELD_AT["body_crc"]


class NotMended(ReplicationError):
    """A damaged record stays as it is for now; the message has the reason."""


class TwinLacks(NotMended):
    """The twin answered, and has no such record."""


@dataclass(frozen=True, slots=True)
class AskTwin:
    """Wanted: the twin's record at this offset; None when it has none."""

    physical_offset: int


@dataclass(frozen=True, slots=True)
class ReadOwn:
    """Wanted: these bytes of this broker's log."""

    physical_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class FindUnit:
    """Wanted: the (physical offset, size) that this broker's queue has for a message, as 16 bytes; None: nothing."""

    topic: str
    queue_id: int
    queue_offset: int


Step = AskTwin | ReadOwn | FindUnit


@dataclass(frozen=True, slots=True)
class OwnLog:
    """The log that is mended: what is below `end` is not cut any more while the broker runs."""

    start: int
    end: int
    segment_bytes: int

    def segment_end(self, physical_offset: int) -> int:
        return physical_offset - physical_offset % self.segment_bytes + self.segment_bytes


@dataclass(frozen=True, slots=True)
class Mend:
    """A record to be written at its place, over bytes that are exactly `damaged`."""

    physical_offset: int
    record: bytes
    damaged: bytes


def pack_place(physical_offset: int, size: int) -> bytes:
    """The answer to FindUnit."""
    return physical_offset.to_bytes(8, "big") + size.to_bytes(8, "big")


def examine(place: int, log: OwnLog, *, is_linked: bool) -> Generator[Step, bytes | None, list[Mend]]:
    """What is to be written from `place` on; nothing if the record there is whole. NotMended with the reason why not.

    Yields what it wants and is sent the answer. `is_linked`: the twin is known to hold all of this log.
    """
    if not log.start <= place <= log.end - RECORD_BYTES_MIN:
        raise NotMended(f"{place} is not in the log, which has {log.start} to {log.end}; its queue unit is damaged")
    if (yield from _is_sound(place, log)):
        return []
    mends: list[Mend] = []
    at = place
    while len(mends) < RECORDS_MAX and at - place <= BYTES_MAX:
        if at > place:
            at = yield from _next_record(at, log)
        if at >= log.end:
            if is_linked:
                return mends
            raise NotMended(f"no whole record follows {place}, so it is not sure that the twin's log is the same")
        theirs = yield AskTwin(at)
        if theirs is None:
            raise TwinLacks(f"the twin has no record at {at}")
        message = _checked(at, theirs, log)
        ours = yield ReadOwn(at, len(theirs))
        if ours is None or len(ours) != len(theirs):
            raise NotMended(f"the log does not have the bytes from {at} on any more")
        if ours == theirs:
            return mends
        if is_whole(memoryview(ours)):
            raise NotMended(f"the twin has another record at {at}: its log is another one")
        yield from _check_unit(at, theirs, message)
        if not has_valid_crc(theirs):
            _check_uncovered(at, theirs, ours)
        mends.append(Mend(at, theirs, ours))
        if has_valid_crc(theirs) and ours[-CRC_PROPERTY_BYTES:] == theirs[-CRC_PROPERTY_BYTES:]:
            return mends
        at += len(theirs)
    raise NotMended(f"more than {len(mends)} damaged records follow {place}; `twinlog store repair` fills them again")


def _is_sound(place: int, log: OwnLog) -> Generator[Step, bytes | None, bool]:
    head = yield ReadOwn(place, BLANK_BYTES)
    size = SIZE_AND_MAGIC.unpack(head)[0] if head is not None and len(head) == BLANK_BYTES else 0
    if not RECORD_BYTES_MIN <= size <= min(log.end, log.segment_end(place)) - place:
        return False
    record = yield ReadOwn(place, size)
    return record is not None and is_whole(memoryview(record))


def _next_record(at: int, log: OwnLog) -> Generator[Step, bytes | None, int]:
    """Where the next record begins: here, or in the next segment."""
    rest = log.segment_end(at) - at
    if rest == log.segment_bytes or at >= log.end:
        return at
    head = (yield ReadOwn(at, BLANK_BYTES)) if rest >= BLANK_BYTES else b""
    return at + rest if head is not None and is_blank(head) else at


def _checked(at: int, theirs: bytes, log: OwnLog) -> Message:
    """The message in the twin's bytes, which must be one whole record of this place."""
    if not is_whole(memoryview(theirs)):
        raise TwinLacks(f"the twin's record at {at} is damaged, too")
    try:
        message = decode_message(theirs)
    except RecordError as error:
        raise TwinLacks(f"the twin's record at {at} is damaged, too: {error}") from error
    if message.physical_offset != at or at + len(theirs) > min(log.end, log.segment_end(at)):
        raise NotMended(
            f"the twin's record at {at} is of {message.physical_offset}, {len(theirs)} bytes: not its place"
        )
    if is_filler(message):
        raise TwinLacks(f"the twin has lost its record at {at}, too")
    return message


def _check_unit(at: int, theirs: bytes, message: Message) -> Generator[Step, bytes | None]:
    """This broker's queue, if it still has the message, must have it at the same place."""
    unit = yield FindUnit(message.topic, message.queue_id, message.queue_offset)
    if unit is not None and unit != pack_place(at, len(theirs)):
        name = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
        raise NotMended(f"the twin has {name} at {at}, and the queue here has that at another place")


def _check_uncovered(at: int, theirs: bytes, ours: bytes) -> None:
    """Of a record without a checksum of its own, only the body and its checksum may differ."""
    flags = int.from_bytes(theirs[FIELD_AT["sys_flag"] : FIELD_AT["sys_flag"] + 4], "big")
    body_at = HEAD_BYTES + V6_EXTRA_BYTES * (bool(flags & BORN_HOST_V6) + bool(flags & STORE_HOST_V6))
    body_end = body_at + int.from_bytes(theirs[body_at - 4 : body_at], "big")
    covered = (slice(0, _BODY_CRC_AT), slice(_BODY_CRC_AT + 4, body_at), slice(body_end, None))
    if any(theirs[part] != ours[part] for part in covered):
        raise NotMended(
            f"the records at {at} have no checksum (enabledAppendPropCRC) and differ outside of their bodies: which "
            "one is right is not known"
        )
