"""Which topic names a record may carry.

A topic becomes the name of a directory, and no checksum covers it. A name that would lead to another directory, by
damage or by malice, makes the record invalid.
"""


def decode_topic(name: bytes | memoryview) -> str | None:
    """The topic, or None when these bytes cannot be one."""
    try:
        topic = str(name, "utf-8")
    except UnicodeDecodeError:
        return None
    return topic if is_topic(topic) else None


def is_topic(topic: str) -> bool:
    """Whether the name is safe as the name of a directory."""
    return bool(topic) and "/" not in topic and "\0" not in topic and topic not in (".", "..")
