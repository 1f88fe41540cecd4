"""Reading answers: what a server should have said is checked before it is used."""

from collections.abc import Mapping

from twinlog.wire.errors import HeaderError


def number(fields: Mapping[str, str] | None, name: str, default: int | None = None) -> int:
    """The number in `fields`; HeaderError when it is missing (without `default`) or none."""
    text = (fields or {}).get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise HeaderError(f"the answer says {name}={text!r} where a number belongs; is it a RocketMQ server?") from None
