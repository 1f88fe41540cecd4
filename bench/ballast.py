"""Memory at hand for a measurement that fills the page cache.

A virtual machine may give memory that has been free for a second or two back to its host, and pays for every page
it takes again: here a file of 2 GiB is written at 7 GiB/s right after another one was deleted, at 0.4 to 1.7 GiB/s
a few seconds later. That is neither the broker's doing nor the copy's. So the memory a run will need is held
until it is needed, and released just ahead of it, at whatever speed the run has.
"""

from __future__ import annotations

import mmap
from types import TracebackType
from typing import Self

import numpy as np

_PIECE_BYTES = 64 << 20
_AHEAD_BYTES = 384 << 20


class Ballast:
    """Holds `size` bytes; `release(used)` frees as many as were used, and some more."""

    def __init__(self, size: int) -> None:
        self._pieces = [_touched() for _ in range(-(-size // _PIECE_BYTES))]
        self._released = 0

    def release(self, used: int) -> None:
        while self._pieces and self._released < used + _AHEAD_BYTES:
            self._pieces.pop().close()
            self._released += _PIECE_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._pieces:
            self._pieces.pop().close()


def _touched() -> mmap.mmap:
    piece = mmap.mmap(-1, _PIECE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    piece.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(piece, np.uint8)[:: mmap.PAGESIZE] = 1
    return piece
