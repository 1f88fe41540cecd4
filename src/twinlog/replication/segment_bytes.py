"""The size of a broker's commit-log files: how its configuration shows it, and the rule when it does not.

A replica's files have the size of its master's; with another size it is refused. So a size that one of two brokers
does not show is taken to be the other's. When neither shows it, there is no default: offsets computed with a
guessed size would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.replication.errors import ReplicationError
from twinlog.settings.conf import spellings
from twinlog.settings.store import StoreSettings

_KEY = "mappedFileSizeCommitLog"
_KEYS = [spelling for spelling, name in spellings(StoreSettings).items() if name == _KEY]  # 4.9 writes an older one


class SegmentBytesUnknown(ReplicationError):
    """No broker shows the size of its commit-log files."""

    def __init__(self) -> None:
        super().__init__(f"neither broker shows {_KEY} in its configuration: allow reading it (getBrokerConfig)")


def shown_segment_bytes(config: Mapping[str, str]) -> int | None:
    """The size in a broker's configuration; None when it shows no valid one."""
    text = next((config[key] for key in _KEYS if config.get(key)), "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def common_segment_bytes(*sizes: int | None) -> int:
    """The first size that is known (neither None nor 0) of logs that must have equal files."""
    size = next(filter(None, sizes), None)
    if size is None:
        raise SegmentBytesUnknown
    return size
