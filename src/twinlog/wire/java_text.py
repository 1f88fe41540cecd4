"""How Java sees text: UTF-16 units, and the hash that tags and index keys are stored under."""

from functools import lru_cache


def utf16_length(text: str) -> int:
    """The number of UTF-16 units in `text`, which Java calls its length."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def java_hash(text: str) -> int:
    """Java's String.hashCode: a 31-polynomial over UTF-16 units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = value * 31 + unit & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(data), 2):
            value = value * 31 + (data[i] << 8 | data[i + 1]) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """What the consume queue stores for a message's tags; 0 without tags."""
    return java_hash(tags) if tags else 0
