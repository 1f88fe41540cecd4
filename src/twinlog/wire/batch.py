"""The body of a batch send: elements back to back.

| totalSize 4 | magic 4 (0) | bodyCRC 4 (0) | flag 4 | bodyLength 4 | body | propertiesLength 2 | properties |
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.wire.errors import BodyError

ELEMENT_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class BatchElement:
    body: bytes
    properties: bytes = b""  # in text form
    flag: int = 0


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    parts: list[bytes] = []
    for element in elements:
        size = ELEMENT_HEAD.size + len(element.body) + 2 + len(element.properties)
        parts += (ELEMENT_HEAD.pack(size, 0, 0, element.flag, len(element.body)), element.body)
        parts += (_SHORT.pack(len(element.properties)), element.properties)
    return b"".join(parts)


def decode_batch(body: bytes | memoryview) -> list[BatchElement]:
    """The elements of a batch; BodyError when lengths do not add up, before anything is stored."""
    elements: list[BatchElement] = []
    at = 0
    while at < len(body):
        try:
            size, _, _, flag, body_length = ELEMENT_HEAD.unpack_from(body, at)
            properties_at = at + ELEMENT_HEAD.size + body_length
            if body_length < 0 or properties_at + 2 > len(body):
                raise BodyError(f"batch element at byte {at}: body of {body_length} bytes runs over the end")
            (properties_length,) = _SHORT.unpack_from(body, properties_at)
        except struct.error:
            raise BodyError(f"batch element at byte {at} is torn: {len(body) - at} bytes are left") from None
        end = properties_at + 2 + properties_length
        if properties_length < 0 or end > len(body) or size != end - at:
            raise BodyError(f"batch element at byte {at} has size {size}, but its parts have {end - at} bytes")
        element_body, properties = body[at + ELEMENT_HEAD.size : properties_at], body[properties_at + 2 : end]
        elements.append(BatchElement(bytes(element_body), bytes(properties), flag))
        at = end
    return elements
