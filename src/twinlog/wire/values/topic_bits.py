"""Bits of a topic: its permission (`perm`) and its `topicSysFlag`."""

READ, WRITE, INHERIT = 4, 2, 1
READ_WRITE = READ | WRITE

UNIT, UNIT_SUBSCRIPTION = 1, 2


def permission_text(perm: int) -> str:
    """As Java shows it: `RW-`, `R--`, `RWX` with the right to inherit."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", READ), ("W", WRITE), ("X", INHERIT)))
