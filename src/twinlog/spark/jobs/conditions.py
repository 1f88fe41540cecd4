"""SQL conditions that several jobs use."""

from __future__ import annotations

from twinlog.wire.values.sys_flag import TRANSACTION_PREPARED

# A log also holds prepared and rolled-back messages of transactions, which are in no queue.
IN_A_QUEUE = f"(sysFlag & {TRANSACTION_PREPARED}) = 0"


def sql_text(text: str) -> str:
    """A string as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
