"""Why and where a scan of records stopped."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StopReason(enum.Enum):
    """Why a scan stopped."""

    END = "end of the written bytes"
    BLANK = "blank record"
    SHORT = "record runs over the end"
    MAGIC = "no record magic"
    SIZE = "impossible record size"
    OFFSET = "record carries another physical offset"
    LENGTHS = "lengths do not add up"
    CRC = "body CRC differs"
    RECORD_CRC = "record CRC differs"
    TOPIC = "invalid topic name"


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a scan stopped: the position in the scanned buffer."""

    position: int
    reason: StopReason
    detail: str = ""

    @property
    def is_checksum(self) -> bool:
        """Whether all lengths of the record fit, and only a checksum differs."""
        return self.reason in (StopReason.CRC, StopReason.RECORD_CRC)

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value
