"""Columns are built from many large temporaries, and glibc gives the memory of each back to the kernel at once.

The next one then takes it anew, a page fault for every 4 KiB: a third of the time of a catch-up. Once it has seen
a larger block come and go, glibc keeps that much at hand.
"""

from __future__ import annotations

import numpy as np

LARGE_BYTES = 2 * 1024 * 1024


def keep_freed_memory() -> None:
    """Cheap, and without effect where the C library is another one."""
    np.empty(LARGE_BYTES, np.uint8)
