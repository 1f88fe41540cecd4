"""The records of one stored batch as dispatch requests, made only when somebody reads them.

What it trades: `append` makes an object per record, with tags and keys read from its properties. Queues and index need
no object: the queue takes all units in one piece, and the index reads the keys of many batches together when it enters
them. Who iterates this (held pulls of the queue, a filter, a plug-in) gets plain requests, always the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from twinlog.store.dispatch import DispatchRequest
from twinlog.store.property_scan import dispatch_properties


class BatchRequests(Sequence[DispatchRequest]):
    """Records that follow one another in the log and in one queue, none of them hidden by a transaction."""

    __slots__ = (
        "_requests",
        "offsets",
        "properties",
        "queue_id",
        "queue_offset",
        "sizes",
        "store_timestamp",
        "sys_flag",
        "tags_codes",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        tags_codes: Sequence[int],
        properties: Sequence[bytes],
        store_timestamp: int,
        sys_flag: int,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset  # of the first
        self.offsets = offsets  # in the log
        self.sizes = sizes
        self.tags_codes = tags_codes
        self.properties = properties  # in text form, without the record's checksum
        self.store_timestamp = store_timestamp
        self.sys_flag = sys_flag
        self._requests: list[DispatchRequest] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> DispatchRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[DispatchRequest]: ...
    def __getitem__(self, index: int | slice) -> DispatchRequest | list[DispatchRequest]:
        if isinstance(index, int) and self._requests is None:
            return self._request(range(len(self))[index])
        return self.requests[index]

    def __iter__(self) -> Iterator[DispatchRequest]:
        return iter(self.requests)

    @property
    def requests(self) -> list[DispatchRequest]:
        if self._requests is None:
            self._requests = [self._request(number) for number in range(len(self))]
        return self._requests

    @property
    def end(self) -> int:
        """Where the last record ends."""
        return self.offsets[-1] + self.sizes[-1]

    def _request(self, number: int) -> DispatchRequest:
        properties = self.properties[number]
        _, keys, uniq_key = dispatch_properties(properties)
        return DispatchRequest(
            self.topic,
            self.queue_id,
            self.offsets[number],
            self.sizes[number],
            self.tags_codes[number],
            self.store_timestamp,
            self.queue_offset + number,
            keys,
            uniq_key,
            self.sys_flag,
            0,
            properties,
        )
