"""What a store answers when it does not do what it was asked; each error names the place and the next step."""

from __future__ import annotations

from twinlog.spark.errors import SparkSourceError

_AGAIN = "what was committed stays, run again"


class LakeError(SparkSourceError):
    """A store refused, or did not answer."""

    def __init__(self, place: object, what: str, hint: str = _AGAIN) -> None:
        super().__init__(f"{place}: {what}; {hint}")


class NotThere(LakeError):
    """A file that must exist does not."""

    def __init__(self, place: object) -> None:
        super().__init__(place, "there is no such file", "was it removed by hand, or by a rule of the bucket?")


def one_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
