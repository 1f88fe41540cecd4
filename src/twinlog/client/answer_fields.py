"""Numbers in the header fields of an answer, checked before they are used."""

from collections.abc import Mapping

from twinlog.wire.errors import HeaderError


def read_number(fields: Mapping[str, str] | None, name: str, default: int | None = None) -> int:
    """The number in `fields`; HeaderError when it is not a number, or missing without a `default`."""
    text = (fields or {}).get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise HeaderError(f"the answer has {name}={text!r}, which is not a number; is it a RocketMQ server?") from None
