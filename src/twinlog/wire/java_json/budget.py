"""How large the JSON of a peer may be before it is refused; every decoder of bodies checks it.

The limits count values, not bytes: a value of two characters takes some twenty bytes of memory, a reference stands for
a whole object, and reading Java's dialect costs a hundred times what plain JSON costs.
"""

from dataclasses import dataclass

from twinlog.wire.errors import BodyError

DEPTH_MAX = 64  # of arrays and objects; the deepest real body has eight


@dataclass(frozen=True, slots=True)
class Budget:
    """How many values one body may hold."""

    typed_values_max: int  # in plain JSON of a known shape, decoded in one call
    values_max: int  # in plain JSON of any shape, which is walked after decoding
    slow_values_max: int  # in Java's dialect, or made by references


# A registration of 100,000 topics counts a million, all typed. Requests of real peers that need more than that (null
# members, bare names) are heartbeats and the like, and small.
PEER = Budget(4_000_000, 500_000, 200_000)
# Offsets and statistics of many queues are written in Java's dialect; clients ask for them.
ANSWER = Budget(4_000_000, 4_000_000, 2_000_000)
BESIDE = Budget(4_000_000, 4_000_000, 200_000)  # from a peer, decoded beside the event loop
FILE = Budget(100_000_000, 100_000_000, 2_000_000)  # files of this machine, and a master's answer with their content


def check_size(data: bytes | str, values_max: int) -> int:
    """The most values that `data` can hold, judged by its separators; BodyError when that is above the limit."""
    if isinstance(data, str):
        count = data.count(",") + data.count("[") + data.count("{") + 1
    else:
        count = data.count(b",") + data.count(b"[") + data.count(b"{") + 1
    if count > values_max:
        raise too_many(values_max)
    return count


def too_many(values_max: int) -> BodyError:
    return BodyError(f"JSON holds or refers to more than {values_max} values; send it in parts")


def too_deep() -> BodyError:
    return BodyError(f"JSON is nested deeper than {DEPTH_MAX}")
