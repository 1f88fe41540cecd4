"""config/timercheck: how far timers are delivered, for the next start, ours or Java's.

    0                8                      16                     24                       32
    | lastReadTimeMs | lastTimerLogFlushPos | lastTimerQueueOffset | masterTimerQueueOffset | ...
    32             40          48        56      64             72            80           88
    | stateVersion | timestamp | counter | magic | readTimeMs   | queueOffset | lowOffset  | copy of bytes 0-55 | zeros

Java reads the first 56 bytes of 4096. It keeps pending messages in files of its own, timerlog and timerwheel, and skips
everything before its queue offset; we have no such files. So for Java we write the lowest pending offset: it parks
everything from there again and delivers what is overdue. A message may come twice, but none is lost. Our own numbers
stand behind the magic. They count as long as the copy equals bytes 0 to 55: then Java has not written since.
"""

from __future__ import annotations

import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from twinlog.wire.errors import BodyError

FILE_NAME = "timercheck"
FILE_BYTES = 4096
_JAVA = struct.Struct(">7q")
_OURS = struct.Struct(">8s3q56s")
_MAGIC = b"TWINLOG1"
_UNKNOWN = -1
_JAVA_FILES = ("timerlog", "timerwheel")


@dataclass(frozen=True, slots=True)
class JavaCheckpoint:
    """The seven numbers that Java keeps, which a replica gets with GET_TIMER_CHECK_POINT."""

    read_time_ms: int = 0
    log_flush_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        return _JAVA.pack(
            self.read_time_ms,
            self.log_flush_position,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.timestamp,
            self.counter,
        )


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """Delivered: offsets below `queue_offset` in slots before `read_time_ms`.

    Nothing before `low_offset` is pending.
    """

    read_time_ms: int = 0
    queue_offset: int = 0
    low_offset: int | None = None  # None: unknown, as after Java ran
    counter: int = 0


def decode_java_checkpoint(body: bytes) -> JavaCheckpoint:
    if len(body) < _JAVA.size:
        raise BodyError(f"timer check point of {len(body)} bytes, {_JAVA.size} are needed")
    return JavaCheckpoint(*_JAVA.unpack_from(body))


def encode_file(progress: TimerProgress, now_ms: int) -> bytes:
    """The whole file; Java starts from `progress.low_offset`, or from the oldest message if that is unknown."""
    low = 0 if progress.low_offset is None else progress.low_offset
    java = JavaCheckpoint(progress.read_time_ms, 0, low, low, 0, now_ms, progress.counter).encode()
    ours = _OURS.pack(
        _MAGIC,
        progress.read_time_ms,
        progress.queue_offset,
        _UNKNOWN if progress.low_offset is None else low,
        java,
    )
    return (java + ours).ljust(FILE_BYTES, b"\0")


def decode_file(data: bytes) -> TimerProgress | None:
    """The progress in a timercheck file; None when the file is too short."""
    if len(data) < _JAVA.size:
        return None
    java = decode_java_checkpoint(data)
    if len(data) >= _JAVA.size + _OURS.size:
        magic, read_time_ms, queue_offset, low_offset, copy = _OURS.unpack_from(data, _JAVA.size)
        if magic == _MAGIC and copy == data[: _JAVA.size]:
            low = None if low_offset == _UNKNOWN else low_offset
            return TimerProgress(read_time_ms, queue_offset, low, java.counter)
    return TimerProgress(java.read_time_ms, java.queue_offset, None, java.counter)


def progress_of_master(body: bytes) -> TimerProgress:
    """What a replica adopts from its master's answer to GET_TIMER_CHECK_POINT."""
    java = decode_java_checkpoint(body)
    return TimerProgress(java.read_time_ms, java.master_queue_offset, None, java.counter)


def delete_java_files(store_root: Path) -> None:
    """Delete the files that Java derived from the wheel queue; with our timercheck it derives them again."""
    for name in _JAVA_FILES:
        path = store_root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
