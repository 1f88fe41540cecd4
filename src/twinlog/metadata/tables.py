"""All metadata tables of one broker, over the files of its config directory.

Files this module does not name (order info, static topic mapping) are left exactly as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twinlog.base.file_modes import PRIVATE, Modes
from twinlog.metadata import delay_offsets, filters, groups, offsets, request_modes, topics
from twinlog.metadata.accounts import AccountTable
from twinlog.metadata.delay_offsets import DelayOffsetTable
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.filters import FilterTable
from twinlog.metadata.groups import GroupTable
from twinlog.metadata.offsets import OffsetTable
from twinlog.metadata.persisted import PersistedTable
from twinlog.metadata.request_modes import RequestModeTable
from twinlog.metadata.topics import TopicTable
from twinlog.security.account_file import AccountFile


@dataclass(frozen=True, slots=True)
class MetadataTables:
    """The tables of one broker."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    delay_offsets: DelayOffsetTable
    filters: FilterTable
    request_modes: RequestModeTable
    accounts: AccountTable

    def __iter__(self) -> Iterator[PersistedTable]:
        yield from (self.topics, self.groups, self.offsets, self.delay_offsets, self.filters, self.request_modes)
        yield self.accounts

    def load(self) -> list[str]:
        """Load every file over the seeded rows; returns one line for each that is broken, or was changed by hand.

        Raises BrokenFile when a file and its backup are both unreadable: nothing is overwritten then.
        """
        problems: list[str] = []
        for table in self:
            table.load()
            file = table.file
            if file is not None and file.problem is not None:
                instead = "its backup was used" if file.from_backup else "it has no backup, so the defaults were used"
                problems.append(f"{file.path} is broken ({file.problem}): {instead}; the next save sets it aside")
            elif file is not None and file.is_changed:
                problems.append(f"{file.path} was changed by hand since its last save: it is used as it is")
        return problems

    def save(self) -> list[str]:
        """Write what changed, in this thread; the names of the files written."""
        return [table.file_name for table in self if table.save()]


def open_tables(
    directory: str | os.PathLike[str] | None,
    now_ms: int,
    *,
    offset_version_step: int = offsets.VERSION_STEP,
    delay_version_step: int = delay_offsets.VERSION_STEP,
    modes: Modes = PRIVATE,
    accounts_file: AccountFile | None = None,
) -> MetadataTables:
    """Empty tables over `directory`; seed the rows that every broker has, then `load`. None: nothing is saved."""

    def file(name: str) -> FileWithBackup | None:
        return None if directory is None else FileWithBackup(Path(directory) / name, modes, has_checksum=True)

    return MetadataTables(
        TopicTable(file(topics.FILE_NAME), now_ms),
        GroupTable(file(groups.FILE_NAME), now_ms),
        OffsetTable(file(offsets.FILE_NAME), now_ms, version_step=offset_version_step),
        DelayOffsetTable(file(delay_offsets.FILE_NAME), now_ms, version_step=delay_version_step),
        FilterTable(file(filters.FILE_NAME), now_ms),
        RequestModeTable(file(request_modes.FILE_NAME), now_ms),
        AccountTable(accounts_file, now_ms),
    )
