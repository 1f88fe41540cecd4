"""config/timercheck of one broker: written by a master as it delivers, by a replica as its master reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.base.safe_files import refuse_link
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.timer_check import (
    FILE_NAME,
    TimerProgress,
    decode_file,
    delete_java_files,
    encode_file,
    progress_of_master,
)

if TYPE_CHECKING:
    from twinlog.settings.store import StoreSettings


class TimerFile:
    """The saved progress, in memory and on disk."""

    def __init__(self, settings: StoreSettings) -> None:
        self._root = Path(settings.root_dir)
        path = self._root / "config" / FILE_NAME
        refuse_link(path)  # before the broker serves: it is read after that
        self._file = FileWithBackup(path, settings.modes)
        self._java_files_deleted = False
        self._from_master: TimerProgress | None = None
        self.saved = TimerProgress()

    def load(self) -> TimerProgress:
        """The progress in the file; without a file, nothing is delivered."""
        self.saved = self._file.load(decode_file) or TimerProgress()
        return self.saved

    def save(self, progress: TimerProgress, now_ms: int) -> None:
        self._file.save([encode_file(progress, now_ms)])
        self.saved = progress
        if not self._java_files_deleted:
            delete_java_files(self._root)
            self._java_files_deleted = True

    def adopt(self, body: bytes, now_ms: int, *, delivers: bool) -> bool:
        """Note the master's progress, and save it unless this broker still delivers itself; whether the file changed.

        The file gets the answer before this one: what it counts as delivered must be in our log too, which may be some
        seconds behind the master's.
        """
        progress, self._from_master = self._from_master, progress_of_master(body)
        if delivers or progress is None or progress == self.saved:
            return False
        self.save(progress, now_ms)
        return True
