"""Why a store refuses to write or read, as the bits Java reports."""

from __future__ import annotations


class RunFlags:
    """A set of reasons; writable while none of the writing ones is set."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64
    _REFUSE_WRITES = NOT_WRITABLE | LOGICS_QUEUE_ERROR | INDEX_ERROR | DISK_FULL | FENCED | LOGIC_DISK_FULL

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def set(self, bit: int) -> None:
        self.value |= bit

    def clear(self, bit: int) -> None:
        self.value &= ~bit

    @property
    def writable(self) -> bool:
        return not self.value & self._REFUSE_WRITES

    @property
    def readable(self) -> bool:
        return not self.value & self.NOT_READABLE
