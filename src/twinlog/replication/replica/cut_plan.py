"""How a broker that was replaced cuts off what the new master does not have: the steps, and why in this order.

The intention is durable before anything changes, and forgotten last. So a start that finds it takes the steps again,
whichever of them were taken before a kill: the tail is copied into a file of its own as long as the log still has it,
the log is cut, and whatever points behind its end is set back. Bytes that are not those of the intention are kept: the
log was cut before, and has grown again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class CutIntent:
    """This broker's log differs from the master's from `cut_at` on."""

    cut_at: int
    checked_end: int  # of the bytes from `cut_at` on that must have this digest
    digest: str
    master_address: str
    master_epoch: int
    at_ms: int  # names the directory of the tail, the same however often it is begun again


class CutStep(Enum):
    SET_ASIDE = "copy the tail into a file of its own, durably"
    CUT = "cut the log and everything built from it, durably"
    CAP_OFFSETS = "set offsets back that point behind the ends of queues"
    NOTE = "keep the range and the file of the tail for the group's history, durably"
    FORGET = "remove the intention"


def plan_cut(intent: CutIntent, digest: str | None, *, is_wanted: bool = True) -> tuple[CutStep, ...]:
    """The steps that are left to be taken; `digest` is that of the log from `cut_at` to `checked_end` now.

    Without failover, a cut is no longer wanted: an operator decides which log counts. One that was made is finished.
    """
    if digest == intent.digest and not is_wanted:
        return (CutStep.FORGET,)
    if digest == intent.digest:
        return (CutStep.SET_ASIDE, CutStep.CUT, CutStep.CAP_OFFSETS, CutStep.NOTE, CutStep.FORGET)
    return (CutStep.CAP_OFFSETS, CutStep.NOTE, CutStep.FORGET)
