"""config/twinlogTails: tails of the log that were set aside, until the history of the group has them.

The step that cuts the log adds them (`tail_cut.py`). The failover service writes them into etcd, which may be away now.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.atomic_file import replace_file
from twinlog.base.safe_files import read_file
from twinlog.store.cut_backup import BACKUP_DIRECTORY
from twinlog.telemetry.log import get_logger
from twinlog.wire.record_layout import BLANK_BYTES, MAGIC_BLANK, SIZE_AND_MAGIC

if TYPE_CHECKING:
    from twinlog.base.file_modes import Modes

log = get_logger(__name__)
_NAME = Path("config", "twinlogTails")


class NotedTail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    begin: int
    end: int
    messages: int
    file: str
    master_epoch: int
    at_ms: int


def note_tail(root: Path, cut_at: int, at_ms: int, master_epoch: int, modes: Modes) -> None:
    """Keep what was set aside at `cut_at`, if it is not kept yet; the file says up to where that was."""
    known = load_tails(root)
    for path in (root / BACKUP_DIRECTORY / str(at_ms)).glob(f"tail-{cut_at}-*"):
        end = int(path.name.rpartition("-")[2])
        if path.stat().st_size == end - cut_at and all(one.file != str(path) for one in known):
            count = count_messages(path)
            known.append(
                NotedTail(begin=cut_at, end=end, messages=count, file=str(path), master_epoch=master_epoch, at_ms=at_ms)
            )
    if known:
        _save(root, known, modes)


def load_tails(root: Path) -> list[NotedTail]:
    try:
        return msgspec.json.decode(read_file(root / _NAME), type=list[NotedTail])
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError) as error:
        log.warning("the notes on tails that were set aside do not parse", path=str(root / _NAME), reason=str(error))
        return []


def forget_tail(root: Path, file: str, modes: Modes) -> None:
    """The history has it."""
    _save(root, [one for one in load_tails(root) if one.file != file], modes)


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


def _save(root: Path, tails: list[NotedTail], modes: Modes) -> None:
    replace_file(root / _NAME, [msgspec.json.encode(tails), b"\n"], modes)
