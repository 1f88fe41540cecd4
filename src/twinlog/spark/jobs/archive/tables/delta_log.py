"""The log of a Delta table in a directory, made durable: deltalake leaves that to the operating system.

    _delta_log/00000000000000000012.json     one JSON object on each line; "add" names a file of the table

An entry counts only with all entries before it and with its files. So they are made durable, in this order, before
ours is written: otherwise a power cut could leave the position of the newest batch without the rows of an older one.
"""

from __future__ import annotations

import contextlib
import json
from urllib.parse import unquote

from twinlog.spark.lake.errors import NotThere
from twinlog.spark.lake.lake import Lake

_LOOK_BACK = 16  # entries of earlier runs, which may have ended before they made them durable


class DeltaLog:
    """Knows which entries are durable, for one run."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._kept: int | None = None

    def keep(self, version: int) -> None:
        """Return when all entries up to this version, and the files that they name, survive a power cut."""
        if not self._lake.root.is_local:
            return
        first = max(version - _LOOK_BACK, 0) if self._kept is None else self._kept + 1
        for number in range(first, version + 1):
            self._keep_entry(f"_delta_log/{number:020d}.json")
        self._kept = version

    def _keep_entry(self, name: str) -> None:
        data = self._lake.read(name)
        if data is None:  # replaced by a checkpoint of the log
            return
        for line in data.splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                with contextlib.suppress(NotThere):  # compacted and expired since
                    self._lake.make_durable(unquote(added["path"]))
        self._lake.make_durable(name)
