"""Where the progress of a push consumer is stored: at the broker, or in a file for broadcasting."""

import contextlib
from pathlib import Path
from typing import Protocol

from twinlog.base.atomic_file import replace_file
from twinlog.client.consuming.queue_calls import QueueCalls
from twinlog.client.errors import ClientError
from twinlog.wire.bodies import MessageQueue, ResetOffsetBody, decode_body, encode_body
from twinlog.wire.errors import WireError


class OffsetStore(Protocol):
    async def load(self, queue: MessageQueue) -> int | None: ...
    async def save(self, queue: MessageQueue, offset: int) -> None: ...


class RemoteOffsets:
    """Clustering: the group has one offset per queue, stored by the queue's broker."""

    def __init__(self, calls: QueueCalls, group: str) -> None:
        self._calls, self._group = calls, group

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._calls.committed(self._group, queue, exact=False)

    async def save(self, queue: MessageQueue, offset: int) -> None:
        await self._calls.commit(self._group, queue, offset)


class LocalOffsets:
    """Broadcasting: every consumer has its own offsets, in a JSON file of Java's format."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offsets: dict[MessageQueue, int] | None = None

    async def load(self, queue: MessageQueue) -> int | None:
        return self._table().get(queue)

    async def save(self, queue: MessageQueue, offset: int) -> None:
        table = self._table()
        table[queue] = offset
        replace_file(self._file, [encode_body(ResetOffsetBody(offset_table=table))])

    def _table(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            self._offsets = {}
            with contextlib.suppress(FileNotFoundError):
                try:
                    self._offsets = decode_body(ResetOffsetBody, self._file.read_bytes()).offset_table
                except WireError as error:
                    raise ClientError(f"{self._file} does not hold offsets ({error}); repair or remove it") from error
        return self._offsets
