"""Gathers a whole table from the pages of a broker's answers to Java's request for it. No I/O.

A broker without pages sends the whole table and no total. When the version changes between two pages, the
first page is asked for again: rows may have moved from one page to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.persisted import PersistedTable
from twinlog.replication.metadata.kinds import GROUPS, Kind
from twinlog.wire.errors import WireError

PAGE_ROWS = 2_000
PAGES_MAX = 1_000  # of one table: 20 times what 100,000 topics need


class TablePages:
    """Request `fields()` until `take` returns True; then `table` is complete, in the form of its file."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._pages = 0
        self.table: Any = None

    def fields(self) -> dict[str, str] | None:
        """The fields of the next request; None for a kind that has no pages."""
        paging = self._kind.paging
        if paging is None:
            return None
        start, version = 0, ""
        if self.table is not None:
            start, version = len(self._rows(self.table)), msgspec.json.encode(self.table.data_version).decode()
        return {paging.start_field: str(start), paging.count_field: str(PAGE_ROWS), "dataVersion": version}

    def take(self, page: Any, answer_fields: Mapping[str, str] | None) -> bool:
        """Add a page that `decode_answer` returned; True when the table is complete."""
        total = (answer_fields or {}).get(self._kind.paging.total_field, "") if self._kind.paging is not None else ""
        if not total.isdigit():
            self.table = page
            return True
        self._pages += 1
        if self.table is not None and self.table.data_version == page.data_version:
            before = len(self._rows(self.table))
            self._add(page)
            if before == len(self._rows(self.table)) < int(total):
                raise BrokenSnapshot(
                    self._kind.name, f"of {total} rows only {before} came, and the next page has no more"
                )
        else:
            self.table = page
        if len(self._rows(self.table)) >= int(total):
            return True
        if self._pages >= PAGES_MAX:
            raise BrokenSnapshot(self._kind.name, f"its version kept changing while {PAGES_MAX} pages were read")
        return False

    def _add(self, page: Any) -> None:
        self._rows(self.table).update(self._rows(page))
        if self._kind is GROUPS and page.forbidden_table:  # of the groups on this page
            self.table.forbidden_table = {**(self.table.forbidden_table or {}), **page.forbidden_table}

    def _rows(self, page: Any) -> dict[str, Any]:
        assert self._kind.paging is not None
        rows = getattr(page, self._kind.paging.rows_member)
        if rows is None:
            raise BrokenSnapshot(self._kind.name, "its table is missing")
        return rows


def decode_answer(kind: Kind, table: PersistedTable, body: bytes | None) -> Any:
    """A broker's answer in the form of the table's file; BrokenSnapshot when it is something else."""
    try:
        return table.decode_file(body or b"")
    except (WireError, ValueError, RecursionError) as error:
        raise BrokenSnapshot(kind.name, str(error)) from error
