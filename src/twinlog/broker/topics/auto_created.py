"""How many topics and groups were created because a client used their name, since the broker started.

The files are Java's and do not contain how a row was created, so the count begins at 0 with each start. Rows that an
administrator creates are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.metadata.groups import GroupTable
    from twinlog.metadata.topics import TopicTable


class AutoCreated:
    """The names that clients created in one table and that are still in it."""

    def __init__(self, table: TopicTable | GroupTable) -> None:
        self._table = table
        self._names: set[str] = set()
        self._checked_revision = -1

    def __len__(self) -> int:
        return len(self._names)

    def has_room(self, names_max: int) -> bool:
        """Whether one more name may be created; rows that were deleted since do not count."""
        if len(self._names) >= names_max and self._checked_revision != self._table.revision:
            self._checked_revision = self._table.revision
            self._names = {name for name in self._names if name in self._table}
        return len(self._names) < names_max

    def add(self, name: str) -> None:
        self._names.add(name)
