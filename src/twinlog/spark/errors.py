"""What can go wrong between Spark and a broker or a store; every error says where, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SparkSourceError(Exception):
    """Base of everything the data sources raise on their own account."""


class BadOption(SparkSourceError):
    """An option that cannot be used as given; nothing was read."""


class BadSchema(SparkSourceError):
    """A schema given by the user that asks for what the source does not have."""


class DataLoss(SparkSourceError):
    """Messages that were to be read are not there any more, or not in order."""

    def __init__(self, where: object, what: str) -> None:
        hint = "set failOnDataLoss=false to go on with what is left, or choose other starting offsets"
        super().__init__(f"{where}: {what}; {hint}")


class CannotRead(SparkSourceError):
    """A broker that does not deliver what it was asked for."""


class NoReplica(CannotRead):
    """A master without the replica that readFrom asks for."""


class OffsetsNotKept(SparkSourceError):
    """A broker acknowledged an offset of a group, and does not hold it."""

    def __init__(self, group: str, place: str, wanted: int, found: int | None) -> None:
        has = "none" if found is None else str(found)
        hint = "stop the group's consumers if some run, then run it again"
        super().__init__(f"group {group}, {place}: its offset was set to {wanted}, the broker has {has}: {hint}")


class BrokerAway(CannotRead):
    """A broker that is not there for longer than the option brokerWait allows; its messages are not lost."""

    def __init__(self, name: str, why: str, elapsed_ms: float) -> None:
        hint = "start it, or set brokerWait to wait longer; nothing is lost, the query goes on where it was"
        super().__init__(f"broker {name} is away for {elapsed_ms / 1000:.0f} s ({why}): {hint}")


class BadRecord(SparkSourceError):
    """A record that is torn, corrupt, or whose body does not inflate."""


class BadRow(SparkSourceError):
    """A row that no broker would take as a message; it was not sent."""


class CannotWrite(SparkSourceError):
    """A broker that does not store what it was sent, or cannot tell whether it did."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that names the known word most like `name`, or all known words."""
    by_lower = {word.lower(): word for word in known}
    found = get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"did you mean {by_lower[found[0]]!r}?" if found else f"known are {', '.join(sorted(by_lower.values()))}"
