"""How far each delay level has been delivered: delayOffset.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from twinlog.metadata.errors import BrokenSnapshot
from twinlog.metadata.file_with_backup import FileWithBackup
from twinlog.metadata.json_file import decode_json
from twinlog.metadata.persisted import SteppedTable, encode_object
from twinlog.wire.bodies import DataVersion
from twinlog.wire.numbers import Int, Long

KIND = "delayOffsets"
FILE_NAME = "delayOffset.json"
VERSION_STEP = 200  # updates per data version, as Java's delayOffsetUpdateVersionStep


class DelayOffsetsFile(msgspec.Struct, rename="camel"):
    data_version: DataVersion | None = None
    offset_table: dict[Int, Long] | None = None


class DelayOffsetTable(SteppedTable):
    """Level -> next offset in queue `level - 1` of the schedule topic."""

    def __init__(
        self,
        file: FileWithBackup | None = None,
        now_ms: int = 0,
        epoch: str | None = None,
        *,
        version_step: int = VERSION_STEP,
    ) -> None:
        super().__init__(file, now_ms, epoch, version_step)
        self._rows: dict[int, int] = {}

    @property
    def rows(self) -> Mapping[int, int]:
        return self._rows

    def get(self, level: int) -> int | None:
        return self._rows.get(level)

    def update(self, level: int, offset: int, now_ms: int) -> None:
        if self._rows.get(level) == offset:
            return
        self._rows[level] = offset
        self._changed_row(str(level), now_ms)

    def adopt(self, rows: Mapping[int, int], version: DataVersion | None) -> bool:
        """Adopt the master's levels; one that it does not send stays, as in Java. False when nothing changed."""
        fresh = {level: offset for level, offset in rows.items() if self._rows.get(level) != offset}
        new_version = version is not None and version != self.version
        if not fresh and not new_version:
            return False
        self._rows = {**self._rows, **fresh}
        if version is not None:
            self.version = version
        self.revisions.touch_all(map(str, fresh))
        self.changed()
        return True

    def decode_file(self, data: bytes) -> DelayOffsetsFile:
        return decode_json(data, DelayOffsetsFile)

    def restore(self, loaded: DelayOffsetsFile) -> None:
        self._rows = {**self._rows, **(loaded.offset_table or {})}
        if loaded.data_version is not None:
            self.version = loaded.data_version
        self.revisions.touch_all(map(str, self._rows))

    def adopt_loaded(self, loaded: DelayOffsetsFile) -> bool:
        if loaded.offset_table is None:
            raise BrokenSnapshot(KIND, "offsetTable is missing")
        return self.adopt(loaded.offset_table, loaded.data_version)

    def encode_file(self) -> Iterable[bytes]:
        """The file, which is also the answer to GET_ALL_DELAY_OFFSET."""
        return encode_object(
            [("dataVersion", msgspec.json.encode(self.version)), ("offsetTable", msgspec.json.encode(self._rows))]
        )
