"""Since when each replica has been behind its master's log.

A replica under load never has quite all of the log. It is behind since the newest time as of which it has everything:
each mark is the log's end at some time, and a replica that reaches a mark had everything as of then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from twinlog.failover.in_sync import Replica


class Behind:
    """Of one master in one epoch. Members that have not connected are behind since the epoch began."""

    def __init__(self, now_ms: int) -> None:
        self._begun_ms = now_ms
        self._had_all_ms: dict[str, int] = {}
        self._marks: dict[str, tuple[int, int]] = {}  # (end of the log, when)

    def update(
        self, members: Collection[str], ends: Mapping[str, int], log_end: int, now_ms: int
    ) -> dict[str, Replica]:
        """What is known of `members` and of the connected replicas; `ends` is what those have reported."""
        replicas: dict[str, Replica] = {}
        for member in {*members, *ends}:
            acked = ends.get(member)
            if acked is None:
                self._marks.pop(member, None)
                replicas[member] = Replica(0, False, self._had_all_ms.get(member, self._begun_ms))
            elif acked >= log_end:
                self._had_all_ms[member] = now_ms
                self._marks.pop(member, None)
                replicas[member] = Replica(acked, True, None)
            else:
                replicas[member] = Replica(acked, True, self._since(member, acked, log_end, now_ms))
        return replicas

    def _since(self, member: str, acked: int, log_end: int, now_ms: int) -> int:
        end, when_ms = self._marks.setdefault(member, (log_end, now_ms))
        if acked >= end:
            self._had_all_ms[member] = when_ms
            self._marks[member] = (log_end, now_ms)
        return self._had_all_ms.setdefault(member, when_ms)
