"""Up to where a master acknowledges, by the in-sync set in force."""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.failover.in_sync import InSyncRules, InSyncState


class AckRule:
    """Of one master in one epoch. It is asked for every send and every report, so it does little.

    Invariant: `acknowledged` is at least the end of everything that was acknowledged, in this epoch or before.
    """

    def __init__(self, me: str, rules: InSyncRules, state: InSyncState, log_end: int) -> None:
        self._me = me
        self._size_min = rules.size_min
        self.acknowledged = log_end
        self._late: dict[str, int] = {}  # members for which a send waited too long, and what they had reported then
        self.state = state

    @property
    def state(self) -> InSyncState:
        return self._state

    @state.setter
    def state(self, state: InSyncState) -> None:
        self._state = state
        self._is_open = self._me in state.certain and state.size >= self._size_min
        self._awaited = tuple(state.awaited - {self._me})

    def end(self, ends: Mapping[str, int], log_end: int) -> int:
        """The end of what may be acknowledged, where `ends` is what the replicas have reported."""
        if not self._is_open:
            return 0
        end = log_end
        for member in self._awaited:
            acked = ends.get(member, 0)
            if acked < end:
                end = acked
        if end > self.acknowledged:
            self.acknowledged = end
        return end

    def may_wait(self, ends: Mapping[str, int]) -> bool:
        """Whether a send may expect to be acknowledged in time: no member that must report is late."""
        if not self._is_open:
            return False
        return not any(member in self._awaited and ends.get(member, 0) <= had for member, had in self._late.items())

    def shortfall(self, ends: Mapping[str, int], log_end: int) -> str:
        """What the newest message lacks to be acknowledged, in words."""
        state = self._state
        if state.size < self._size_min:
            return f"the in-sync set has {state.size} of the {self._size_min} members that it needs"
        if self._me not in state.certain:
            return "this master is perhaps not in the in-sync set"
        late = sorted(member for member in self._awaited if ends.get(member, 0) < log_end)
        return f"in-sync members that have not reported the message: {', '.join(late) or 'none'}"

    def missed(self, ends: Mapping[str, int], end: int) -> None:
        """A send waited too long for the log before `end`: members that lack it are late until they report more."""
        self._late = {member: ends.get(member, 0) for member in self._awaited if ends.get(member, 0) < end}
