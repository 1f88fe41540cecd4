"""A hint to glibc's malloc to keep freed memory.

Columns are built from many large temporary arrays. By default glibc returns the memory of each to the kernel at once,
and the next array costs a page fault for every 4 KiB: a third of the time of a replica that catches up. After one
block of LARGE_BYTES was allocated and freed, glibc keeps blocks up to that size.
"""

from __future__ import annotations

import numpy as np

LARGE_BYTES = 2 * 1024 * 1024


def keep_freed_memory() -> None:
    """Allocate and free one large block. Cheap; without effect on other C libraries."""
    np.empty(LARGE_BYTES, np.uint8)
