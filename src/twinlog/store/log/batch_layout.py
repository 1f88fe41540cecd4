"""Batches whose elements are alike: each has its body and the names of its properties at the same positions.

A program fills a batch with messages that it makes in one way: the same names in the same order, and mostly values of
one length, since keys and ids are counted up. So the positions are found once, and then one `struct` call per step
handles all elements of a batch in C:

    fixed     heads, lengths, names and separators; they must be those of the batch that the layout was learned from
    parts     body and properties of each element
    records   what the log gets; checksums of records are added last

What it trades: a second form of `append_batch`'s rules, and memory for the layouts, which is bounded. A batch that
differs in more than the bytes of bodies and values fits no layout, and is stored element by element. A property test
holds both equal.
"""

from __future__ import annotations

import struct

from twinlog.store.log.record_crc import CRC_NAME, with_crcs
from twinlog.store.property_scan import value_places
from twinlog.wire.batch import ELEMENT_HEAD
from twinlog.wire.checksum import crc32
from twinlog.wire.java_text import tags_code
from twinlog.wire.record_layout import FIELD_AT, HEAD_BYTES, PROPERTIES_LENGTH, SIZE_AND_MAGIC

COUNT_MIN, COUNT_MAX = 2, 128  # elements of a batch that has a layout
_ELEMENT_BYTES_MAX = 4096  # of larger ones, the copies cost more than is saved
_SEEN_BEFORE = 3  # times, before a layout is learned: a single use does not pay for it
_MISSES_MAX = 16  # then another one may be learned in its place
_LAYOUTS_MAX, _SEEN_MAX = 256, 4096
_PAIR_END = b"\x02"
_INT = struct.Struct(">i")
_SHARED_BYTES = HEAD_BYTES - FIELD_AT["sys_flag"]

Parts = tuple[tuple[bytes, ...], tuple[bytes, ...], list[int]]
"""bodies, properties as they are stored (without checksum), tags codes"""


class BatchLayout:
    """How `count` elements of one layout become records of `record_bytes` each."""

    __slots__ = (
        "_body_length", "_closing", "_expected", "_fixed", "_flag", "_pair_ends", "_parts", "_properties_length",
        "_records", "_split", "_tags", "content_bytes", "count", "misses", "record_bytes",
    )  # fmt: skip

    def __init__(
        self, element: bytes, body_length: int, places: dict[bytes, slice], count: int, topic_bytes: int, crc_bytes: int
    ) -> None:
        """`places` says where the values are in the element's properties."""
        body_end = ELEMENT_HEAD.size + body_length
        begin = body_end + PROPERTIES_LENGTH.size
        properties = element[begin:]
        self.count, self.misses = count, 0
        self.content_bytes = len(element) - ELEMENT_HEAD.size  # of a body with its properties
        fixed, at = f"{ELEMENT_HEAD.size}s{body_length}x{PROPERTIES_LENGTH.size}s", 0
        for value in places.values():
            fixed += f"{value.start - at}s{value.stop - value.start}x"
            at = value.stop
        fixed += f"{len(properties) - at}s"
        self._fixed = struct.Struct(fixed * count)
        self._expected = struct.unpack(fixed, element) * count
        self._parts = struct.Struct(
            f"{ELEMENT_HEAD.size}x{body_length}s{PROPERTIES_LENGTH.size}x{len(properties)}s" * count
        )
        self._pair_ends = properties.count(_PAIR_END) * count
        tags = places.get(b"TAGS")
        self._tags = tags and struct.Struct(
            f"{begin + tags.start}x{tags.stop - tags.start}s{len(properties) - tags.stop}x" * count
        )
        self._closing = _PAIR_END if crc_bytes and properties and properties[-1:] != _PAIR_END else b""
        stored_bytes = len(properties) + len(self._closing)
        self._properties_length = PROPERTIES_LENGTH.pack(stored_bytes + crc_bytes)
        self._flag, self._body_length = element[12:16], _INT.pack(body_length)
        record = f"8si8sqq{_SHARED_BYTES}s{body_length}s{topic_bytes + PROPERTIES_LENGTH.size}s{stored_bytes}s"
        self._records = struct.Struct(">" + record * count)
        own_bytes = self._records.size // count
        self._split = struct.Struct(f"{own_bytes}s" * count) if crc_bytes else None
        self.record_bytes = own_bytes + crc_bytes

    def read(self, batch: bytes) -> Parts | None:
        """The parts of a batch of as many bytes; None when it has another layout."""
        if self._fixed.unpack(batch) != self._expected:
            return None
        parts = self._parts.unpack(batch)
        properties = parts[1::2]
        if b"".join(properties).count(_PAIR_END) != self._pair_ends:  # a value has a separator in it
            return None
        if self._closing:
            properties = tuple([text + _PAIR_END for text in properties])
        codes = [0] * self.count
        if self._tags is not None:
            tags = self._tags.unpack(batch)
            first = tags[0]
            if tags.count(first) == self.count:
                codes = [tags_code(first.decode("utf-8", "replace"))] * self.count
            else:
                codes = [tags_code(one.decode("utf-8", "replace")) for one in tags]
        return parts[0::2], properties, codes

    def encode(
        self, parts: Parts, magic: int, topic: bytes, queue_id: int, shared: bytes, queue_offset: int, begin: int
    ) -> bytes:
        """The records of these parts from physical offset `begin` on; `shared` goes up to the body's length."""
        bodies, properties, _ = parts
        count, size = self.count, self.record_bytes
        fields = [
            SIZE_AND_MAGIC.pack(size, magic), 0, _INT.pack(queue_id) + self._flag, 0, 0,
            shared + self._body_length, b"", topic + self._properties_length, b"",
        ]  # fmt: skip
        step = len(fields)
        fields *= count
        fields[1::step] = [crc & 0x7FFFFFFF for crc in map(crc32, bodies)]
        fields[3::step] = range(queue_offset, queue_offset + count)
        fields[4::step] = range(begin, begin + count * size, size)
        fields[6::step] = bodies
        fields[8::step] = properties
        packed = self._records.pack(*fields)
        return packed if self._split is None else with_crcs(self._split.unpack(packed))


class BatchLayouts:
    """The layouts that were learned, by the first element's head and the lengths around it."""

    def __init__(self, crc_bytes: int) -> None:
        self._crc_bytes = crc_bytes
        self._layouts: dict[tuple[bytes, int, int], BatchLayout] = {}
        self._seen: dict[tuple[bytes, int, int], int] = {}

    def read(self, batch: bytes, topic_bytes: int) -> tuple[BatchLayout, Parts] | None:
        """The layout of a batch and its parts; None when it has none."""
        key = batch[: ELEMENT_HEAD.size], len(batch), topic_bytes
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._learn(key, batch)
            if layout is None:
                return None
        parts = layout.read(batch)
        if parts is not None:
            return layout, parts
        layout.misses += 1
        if layout.misses > _MISSES_MAX:
            del self._layouts[key]
        return None

    def _learn(self, key: tuple[bytes, int, int], batch: bytes) -> BatchLayout | None:
        """The layout of the batch's first element, if it comes often and there may be such a layout."""
        head, length, topic_bytes = key
        if length < ELEMENT_HEAD.size + PROPERTIES_LENGTH.size:
            return None
        size, _, _, _, body_length = ELEMENT_HEAD.unpack(head)
        if not ELEMENT_HEAD.size < size <= _ELEMENT_BYTES_MAX or length % size:
            return None
        count, places_at = length // size, ELEMENT_HEAD.size + body_length + PROPERTIES_LENGTH.size
        if body_length < 0 or places_at > size or not COUNT_MIN <= count <= COUNT_MAX:
            return None
        seen = self._seen.get(key, 0)
        if seen < _SEEN_BEFORE:
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            self._seen[key] = seen + 1
            return None
        self._seen[key] = 0
        (properties_length,) = PROPERTIES_LENGTH.unpack_from(batch, places_at - PROPERTIES_LENGTH.size)
        places = value_places(batch[places_at:size])
        if properties_length != size - places_at or places is None or CRC_NAME[:-1] in places:
            return None
        if len(self._layouts) >= _LAYOUTS_MAX:
            self._layouts.clear()
        layout = BatchLayout(batch[:size], body_length, places, count, topic_bytes, self._crc_bytes)
        self._layouts[key] = layout
        return layout
