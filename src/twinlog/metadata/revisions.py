"""Which keys of a table changed since a given moment, at a cost that follows the change and not the table.

Every change takes the next revision. Keys are held in the order of their last change, so "since r" walks
backwards from the newest and stops at r. A removed key stays in the order as a tombstone; when there are
too many of them the older half is forgotten, and whoever asks from before that point gets the whole table.

Revisions mean something only within one life of the process: `epoch` names that life.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

TOMBSTONES_MAX = 65_536


class Revisions:
    """The order of changes of one table's keys. `current` is the revision of the newest change."""

    def __init__(self, epoch: str | None = None, *, tombstones_max: int = TOMBSTONES_MAX) -> None:
        self.epoch = epoch or secrets.token_hex(8)
        self.current = 0
        self._floor = 0  # changes at or before this revision may have been forgotten
        self._changed: dict[str, int] = {}  # key -> revision, oldest change first
        self._removed: dict[str, int] = {}
        self._tombstones_max = tombstones_max

    def step(self) -> int:
        """Note a change that belongs to no key."""
        self.current += 1
        return self.current

    def touch(self, key: str) -> int:
        """Note that `key` has a new value."""
        self.current += 1
        self._removed.pop(key, None)
        self._changed.pop(key, None)  # so that it moves to the end
        self._changed[key] = self.current
        return self.current

    def bury(self, key: str) -> int:
        """Note that `key` is gone."""
        self.current += 1
        self._changed.pop(key, None)
        self._removed.pop(key, None)
        self._removed[key] = self.current
        if len(self._removed) > self._tombstones_max:
            self._forget_old_tombstones()
        return self.current

    def since(self, epoch: str, revision: int) -> tuple[list[str], list[str]] | None:
        """Keys (changed, removed) after `revision`; None when only the whole table can tell."""
        if not self.knows(epoch, revision):
            return None
        return _newer(self._changed, revision), _newer(self._removed, revision)

    def page(self, revision: int, count_max: int) -> tuple[list[str], list[str], int]:
        """Up to `count_max` keys (changed, removed) after `revision`, oldest first, and the revision they reach."""
        newer = sorted(
            [(self._changed[key], key, True) for key in _newer(self._changed, revision)]
            + [(self._removed[key], key, False) for key in _newer(self._removed, revision)]
        )
        reached = newer[count_max - 1][0] if len(newer) > count_max else self.current
        rows = newer[:count_max]
        return [key for _, key, there in rows if there], [key for _, key, there in rows if not there], reached

    def knows(self, epoch: str, revision: int) -> bool:
        """Whether a peer at this point can be told everything it lacks, removals too."""
        return epoch == self.epoch and self._floor <= revision <= self.current

    def touch_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.touch(key)

    def _forget_old_tombstones(self) -> None:
        for key in list(self._removed)[: len(self._removed) // 2]:
            self._floor = self._removed.pop(key)


def _newer(order: dict[str, int], revision: int) -> list[str]:
    keys: list[str] = []
    for key, changed in reversed(order.items()):
        if changed <= revision:
            break
        keys.append(key)
    keys.reverse()
    return keys
