"""The file of a log tail that was cut off (`cut_backup.py`): whole records, one after the other."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twinlog.base.system_names import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX, SYSTEM_TOPICS, TIMER_TOPIC
from twinlog.store.errors import StoreError
from twinlog.wire import properties as names
from twinlog.wire.errors import RecordError
from twinlog.wire.message import Message, decode_message
from twinlog.wire.record_layout import BLANK_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC

_NAME = re.compile(r"tail-(\d+)-(\d+)")
_PARKED = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
_DELAYS = frozenset({names.DELAY, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS})
# What the broker that stored the message added; the next one adds its own.
_OF_THE_BROKER = frozenset(
    {
        names.REAL_TOPIC,
        names.REAL_QID,
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
        names.TIMER_OUT_MS,
        names.TRAN_MSG,
        names.INNER_NUM,
        names.INNER_BASE,
    }
)


class NotATail(StoreError):
    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} is not a tail that was set aside: {problem}")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the file that are not a record; what follows them cannot be found."""

    physical_offset: int
    bytes: int
    reason: str


def read_tail(path: Path) -> Iterator[Message | Damage]:
    """The messages of a tail, in the order of the log."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise NotATail(path, "its name must be tail-<begin>-<end>, as `replication rejoin` writes it")
    data, begin = path.read_bytes(), int(match[1])
    if len(data) != int(match[2]) - begin:
        raise NotATail(path, f"it has {len(data)} bytes, its name says {int(match[2]) - begin}")
    at = 0
    while at < len(data):
        try:
            if len(data) - at >= SIZE_AND_MAGIC.size and SIZE_AND_MAGIC.unpack_from(data, at)[1] == MAGIC_BLANK:
                at += max(SIZE_AND_MAGIC.unpack_from(data, at)[0], SIZE_AND_MAGIC.size)
                continue
            message = decode_message(data, at)
        except RecordError as error:
            yield Damage(begin + at, len(data) - at, str(error))
            return
        yield message
        at += message.store_size


def count_messages(path: Path) -> int:
    """The number of records in a tail. Only their heads are read: a tail may be long."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = count = 0
        while at + BLANK_BYTES <= len(data):
            size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
            if size < BLANK_BYTES:
                break
            count += magic != MAGIC_BLANK
            at += size
        return count


def sent_again(message: Message) -> tuple[str, dict[str, str]] | str:
    """(topic, properties) to send `message` with; or the reason why it is not sent.

    A delayed message goes to the topic it was meant for, with its delay. Its unique key stays: it shows whether the
    message is there already.
    """
    properties = {name: value for name, value in message.properties.items() if name not in _OF_THE_BROKER}
    topic = message.topic
    if topic in _PARKED:
        topic = message.properties.get(names.REAL_TOPIC, "")
        if not topic:
            return f"it waits in {message.topic} and does not name its topic"
    else:  # one that was delivered keeps them, and is due
        properties = {name: value for name, value in properties.items() if name not in _DELAYS}
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX):
        return f"{topic} is RocketMQ's own; producers and consumers repeat what they had there"
    if topic.startswith(RETRY_PREFIX):
        return f"{topic} has retries; the group reads the message itself again"
    if names.UNIQ_KEY not in properties:
        return "it has no unique key, so nobody can say whether it is there already"
    return topic, properties
