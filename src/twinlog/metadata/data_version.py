"""The version that a table carries on the wire and in its file.

Java compares versions for equality only (a replica that has the master's version has its table), except
when a returning master decides whose table is newer.
"""

from __future__ import annotations

from twinlog.wire.bodies import DataVersion


def first_version(now_ms: int) -> DataVersion:
    return DataVersion(state_version=0, timestamp=now_ms, counter=0)


def next_version(version: DataVersion, now_ms: int, state_version: int = 0) -> DataVersion:
    return version.next(now_ms, state_version)


def same_version(a: DataVersion, b: DataVersion) -> bool:
    return version_order(a) == version_order(b)


def version_order(version: DataVersion) -> tuple[int, int, int]:
    """Sorts versions from old to new."""
    return version.state_version, version.counter, version.timestamp


def version_text(version: DataVersion) -> str:
    """state:timestamp:counter, for log lines."""
    return f"{version.state_version}:{version.timestamp}:{version.counter}"
