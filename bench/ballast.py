"""The state of free memory before a measurement that fills the page cache: at hand, or still to be had.

A virtual machine gives memory that has been free for a second or two back to its host, and waits for the host with
every page that it takes again: here a file is written at 5 to 9 GB/s into memory that was used a moment ago, at 0.3 to
0.7 GB/s into memory that the host must give first. Both happen: a broker that has just started on a machine with free
memory takes untouched pages, one on a busy machine takes those that something else has just freed. Which of them a
broker finds must not depend on who ran before, so a measurement makes one of the two states itself:

    touched      holds memory that was written to, and releases it just ahead of the run, at whatever speed it has
    untouched    takes the touched memory that is free until pages come slowly, and holds it as long as the run takes

On a machine without a host no memory is slow, and both states are the same.
"""

from __future__ import annotations

import mmap
import os
import time
from types import TracebackType
from typing import Self

import numpy as np

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
_PIECE_BYTES = 64 << 20
_AHEAD_BYTES = 384 << 20
_SLOW_SECONDS = _PIECE_BYTES / 1.5e9  # for a piece; touched memory takes a quarter of that
_SLOW_PIECES = 4  # in a row: what is free now is untouched
_SPARE_BYTES = 3 << 30  # stay free beside what the run needs for its files


class Ballast:
    """Memory that is held; `release(used)` frees as many bytes as were used, and some more."""

    def __init__(self, pieces: list[mmap.mmap], *, releases: bool) -> None:
        self._pieces = pieces
        self._releases = releases
        self._released = 0

    @classmethod
    def touched(cls, size: int) -> Self:
        """`size` bytes for the run."""
        return cls([_touched() for _ in range(-(-size // _PIECE_BYTES))], releases=True)

    @classmethod
    def untouched(cls, size: int) -> Self:
        """The touched memory that is free, so that the run, which needs `size` bytes, finds none of it."""
        pieces: list[mmap.mmap] = []
        slow = 0
        most = (os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE - size - _SPARE_BYTES) // _PIECE_BYTES
        while slow < _SLOW_PIECES and len(pieces) < most:
            begun = time.thread_time()
            pieces.append(_touched(mmap.MADV_NOHUGEPAGE))
            slow = slow + 1 if time.thread_time() - begun > _SLOW_SECONDS else 0
        return cls(pieces, releases=False)

    @property
    def bytes(self) -> int:
        return len(self._pieces) * _PIECE_BYTES

    def release(self, used: int) -> None:
        while self._releases and self._pieces and self._released < used + _AHEAD_BYTES:
            self._pieces.pop().close()
            self._released += _PIECE_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._pieces:
            self._pieces.pop().close()


def _touched(advice: int = mmap.MADV_HUGEPAGE) -> mmap.mmap:
    piece = mmap.mmap(-1, _PIECE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    piece.madvise(advice)
    try:
        piece.madvise(_POPULATE_WRITE)
    except OSError:
        np.frombuffer(piece, np.uint8)[:: mmap.PAGESIZE] = 1
    return piece
