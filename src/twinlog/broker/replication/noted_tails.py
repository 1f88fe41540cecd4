"""config/twinlogTails: tails of the log that were set aside, until the history of the group has them.

The step that cuts the log adds them (`tail_cut.py`). The failover service writes them into etcd, which may be away now.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from twinlog.base.atomic_file import replace_file
from twinlog.base.safe_files import read_file
from twinlog.store.cut_backup import BACKUP_DIRECTORY
from twinlog.store.offline.tail_file import count_messages
from twinlog.telemetry.log import get_logger

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


def _save(root: Path, tails: list[NotedTail], modes: Modes) -> None:
    replace_file(root / _NAME, [msgspec.json.encode(tails), b"\n"], modes)
