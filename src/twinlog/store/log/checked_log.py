"""Records are checked when they are read again from old parts of the log, before anybody gets them.

What this process wrote lately is in memory as it was written. What is older, or was there at the start, may come from
a disk that has damaged it, so each read of it compares checksums: about 1 microsecond per record of 1 KiB.

    is_whole, are_whole, next_of_queue    compare records with their checksums, and with their place in a queue
    LoadedLog                             old records that are in memory by now: whoever reads through it checks them
"""

from __future__ import annotations

from twinlog.store.log.log_access import LogAccess
from twinlog.store.log.record_crc import CRC_PROPERTY_BYTES, crc_property, ends_in_crc
from twinlog.wire.checksum import crc32
from twinlog.wire.record_layout import (
    BEFORE_HOSTS,
    BEHIND_HOSTS,
    HOST_BYTES,
    HOST_V6_BYTES,
    HOSTS_AT,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    RECORD_BYTES_MIN,
    TIMESTAMP,
)
from twinlog.wire.values.sys_flag import BORN_HOST_V6, STORE_HOST_V6

_SYS_FLAG_AT = HOSTS_AT - 12  # before it: system flag, born timestamp
_unpack = BEFORE_HOSTS.unpack_from
_unpack_behind_hosts = BEHIND_HOSTS.unpack_from


def is_whole(record: memoryview) -> bool:
    """Whether this is one record, and its bytes agree with its checksum."""
    return len(record) >= RECORD_BYTES_MIN and _unpack(record, 0)[0] == len(record) and _are_whole(record) is not None


def are_whole(window: memoryview) -> bool:
    """Whether the window consists of whole records."""
    return _are_whole(window) is not None


def next_of_queue(window: memoryview, queue_id: int, low: int, high: int) -> int | None:
    """The offset behind the last record of a window that a read of this queue returned.

    None if one is not whole, or its queue offset is not in the range, or not higher than the one before; with `high`
    equal to `low`, none may be missing.
    """
    return _are_whole(window, queue_id, low, high)


def _are_whole(window: memoryview, queue_id: int | None = None, low: int = 0, high: int = 0) -> int | None:
    at, end = 0, len(window)
    while at < end:
        if end - at < RECORD_BYTES_MIN:
            return None
        size, magic, _, its_id, _, its_offset, _, _, _ = _unpack(window, at)
        if queue_id is not None:
            if its_id != queue_id or (its_offset != low and not low < its_offset < high):
                return None
            low = its_offset + 1
        after = at + size
        if size < RECORD_BYTES_MIN or after > end or (magic != MAGIC_V1 and magic != MAGIC_V2):
            return None
        crc_at = after - CRC_PROPERTY_BYTES
        said = bytes(window[crc_at:after])
        if said != crc_property(window[at:crc_at]) and not _body_agrees(window[at:after], magic):
            return None
        at = after
    return low


def _body_agrees(record: memoryview, magic: int) -> bool:
    """Whether a record that does not end with its checksum has none, and its lengths and its body's CRC agree."""
    version = 1 if magic == MAGIC_V1 else 2
    flags = int.from_bytes(record[_SYS_FLAG_AT : _SYS_FLAG_AT + 4], "big")
    hosts = (HOST_V6_BYTES if flags & BORN_HOST_V6 else HOST_BYTES) + TIMESTAMP.size
    hosts += HOST_V6_BYTES if flags & STORE_HOST_V6 else HOST_BYTES
    body_at, size = HOSTS_AT + hosts + BEHIND_HOSTS.size, len(record)
    if body_at > size:
        return False
    body_length = _unpack_behind_hosts(record, body_at - BEHIND_HOSTS.size)[2]
    topic_at = body_at + body_length + version
    if body_length < 0 or topic_at + PROPERTIES_LENGTH.size > size:
        return False
    topic_length = int.from_bytes(record[topic_at - version : topic_at], "big", signed=True)
    properties_at = topic_at + topic_length + PROPERTIES_LENGTH.size
    if topic_length < 0 or properties_at > size:
        return False
    if PROPERTIES_LENGTH.unpack_from(record, properties_at - 2)[0] != size - properties_at:
        return False
    body_crc = int.from_bytes(record[8:12], "big")
    if crc32(record[body_at : body_at + body_length]) & 0x7FFFFFFF != body_crc:
        return False
    return not ends_in_crc(bytes(record[properties_at:]))


class LoadedLog(LogAccess):
    """For a read of old records that a thread has just brought into memory."""

    __slots__ = ()
    is_old = True

    def _need(self, physical_offset: int, size: int) -> None:
        """They are there."""
