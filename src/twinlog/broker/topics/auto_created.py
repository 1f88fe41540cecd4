"""Topics and groups that exist because a client used their name: how many of them one run of a broker makes.

The files do not say how a row came into being (they are Java's), so the count begins anew with each start. Rows that
an administrator creates have no such limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.metadata.groups import GroupTable
    from twinlog.metadata.topics import TopicTable


class AutoCreated:
    """The names that clients brought into one table and that are still in it."""

    def __init__(self, table: TopicTable | GroupTable) -> None:
        self._table = table
        self._names: set[str] = set()
        self._looked_at_revision = -1

    def __len__(self) -> int:
        return len(self._names)

    def has_room(self, names_max: int) -> bool:
        """Whether one more name fits; rows that were deleted since count no more."""
        if len(self._names) >= names_max and self._looked_at_revision != self._table.revision:
            self._looked_at_revision = self._table.revision
            self._names = {name for name in self._names if name in self._table}
        return len(self._names) < names_max

    def add(self, name: str) -> None:
        self._names.add(name)
