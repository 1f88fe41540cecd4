"""A `time` module for one module under test: other threads of the process keep the real one."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any


def own_time(**replaced: Any) -> SimpleNamespace:
    """`time` with some functions replaced. To replace them in `time` itself would also reach Spark's own threads."""
    return SimpleNamespace(**{**vars(time), **replaced})
