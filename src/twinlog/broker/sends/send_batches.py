"""Batch sends by the chunk: all that follow one another are stored together.

`send` defines what a batch means and handles those that are unusual: inner batches of a BatchCQ topic, a delay, too
many bytes, lengths that do not add up. A property test holds both equal, byte for byte.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from twinlog.broker.sends.send_answers import BatchPlace, Unanswered, json_texts
from twinlog.store.message_store import MessageStore
from twinlog.wire import properties as names
from twinlog.wire.batch import ELEMENT_HEAD
from twinlog.wire.command import ONEWAY_FLAG
from twinlog.wire.errors import FrameError
from twinlog.wire.frame import JSON, PREFIX, frame_span
from twinlog.wire.properties import decode_properties
from twinlog.wire.sends.send_headers import decode_json_send

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.sends.send_signed import SignedFrom
    from twinlog.broker.sends.send_target import Targets
    from twinlog.store.log.append_batches import Batch
    from twinlog.wire.sends.binary_sends import BinarySends

_TOGETHER_MIN = 384  # so many messages are stored with numpy; with fewer it is slower than batch by batch


class BatchSends:
    """Decodes and stores the batches at the front of a chunk."""

    def __init__(self, ctx: BrokerContext, targets: Targets, binary: BinarySends) -> None:
        self._ctx = ctx
        self._targets = targets
        self._binary = binary
        self._is_plain_store = type(ctx.store) is MessageStore  # a plug-in around it sees every message, one by one

    def decode(
        self, data: bytes, at: int, end: int, signed: SignedFrom | None = None, *, waits: bool
    ) -> tuple[list[Batch], list[Unanswered]]:
        """The batches in the frames from `at` on, until one is unusual, incomplete or not a batch."""
        batches: list[Batch] = []
        sends: list[Unanswered] = []
        bytes_max = self._ctx.conf.store.message_bytes_max
        view = memoryview(data)  # a batch may have megabytes
        decode_json = decode_json_send if signed is None else signed.sends.decode_json
        decode_binary = self._binary.decode if signed is None else signed.sends.decode_binary
        while self._is_plain_store and end - at > PREFIX.size:
            try:
                span = frame_span(data, at, end)
            except FrameError:  # raised again, after these batches are answered
                break
            if span is None:
                break
            header_type, header_end, frame_end = span
            header = data[at + 8 : header_end]
            flat = decode_json(header) if header_type == JSON else decode_binary(header)
            if flat is None or not 0 < frame_end - header_end <= bytes_max:
                break
            opaque, command_flag, constants, born, text = flat
            target = self._targets.get(constants) or self._targets.decide(constants)
            if target is None or not target.is_batch or command_flag & ~ONEWAY_FLAG:
                break
            if signed is not None and not signed.admits(target.topic, data[header_end:frame_end]):
                break
            pairs = decode_properties(text)
            if names.DELAY in pairs or (waits and pairs.get(names.WAIT, "true").lower() != "true"):
                break
            elements = view[header_end:frame_end]
            batches.append((target.topic, target.queue_id, elements, born, target.sys_flag, target.reconsume_times))
            sends.append((target, None if command_flag else opaque, pairs.get(names.UNIQ_KEY, ""), frame_end))
            at = frame_end
        json_texts(sends)
        return batches, sends

    def store(self, born_host: tuple[str, int], batches: list[Batch]) -> list[BatchPlace]:
        """Store the batches, each all or none; returns the places of those before the first that was not stored."""
        store = self._ctx.store
        if sum(_about_count(batch[2]) for batch in batches) >= _TOGETHER_MIN:
            together = store.append_batches(born_host, batches)
            if together is not None:
                offsets, at, places = together.physical_offsets.astype(">i8").tobytes(), 0, list[BatchPlace]()
                for count, queue_offset, size in zip(
                    together.counts, together.queue_offsets, together.sizes, strict=True
                ):
                    places.append((offsets[at : at + 8 * count], queue_offset, size))
                    at += 8 * count
                return places
        places = []
        for topic, queue_id, elements, *numbers in batches:
            appended = store.append_elements(born_host, topic, queue_id, bytes(elements), *numbers)
            if appended is None or not appended.ok:
                break
            offsets = struct.pack(f">{len(appended.physical_offsets)}q", *appended.physical_offsets)
            places.append((offsets, appended.queue_offset, appended.size))
        return places


def _about_count(batch: bytes | memoryview) -> int:
    """How many messages a batch has, if all are as long as the first."""
    return len(batch) // max(ELEMENT_HEAD.size, int.from_bytes(batch[:4], "big"))
