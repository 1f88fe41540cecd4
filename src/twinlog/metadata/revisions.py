"""Which keys of a table changed since a revision, at a cost that depends on the changes and not on the table.

Every change gets the next revision. Keys are kept in the order of their last change, so "since r" walks
backwards from the newest and stops at r. A removed key stays in the order as a tombstone. When there are too many of
them, the older half is dropped; a peer with a revision before that must take the whole table.

Revisions count from the start of the process: `epoch` is different after each start.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable

TOMBSTONES_MAX = 65_536


class Revisions:
    """The order of changes of one table's keys. `current` is the revision of the newest change."""

    def __init__(self, epoch: str | None = None, *, tombstones_max: int = TOMBSTONES_MAX) -> None:
        self.epoch = epoch or secrets.token_hex(8)
        self.current = 0
        self._floor = 0  # tombstones at or before this revision were dropped
        self._changed: dict[str, int] = {}  # key -> revision, oldest change first
        self._removed: dict[str, int] = {}
        self._tombstones_max = tombstones_max

    def step(self) -> int:
        """Count a change that belongs to no key."""
        self.current += 1
        return self.current

    def touch(self, key: str) -> int:
        """`key` has a new value."""
        self.current += 1
        self._removed.pop(key, None)
        self._changed.pop(key, None)  # so that it moves to the end
        self._changed[key] = self.current
        return self.current

    def remove(self, key: str) -> int:
        """`key` is gone; it stays as a tombstone."""
        self.current += 1
        self._changed.pop(key, None)
        self._removed.pop(key, None)
        self._removed[key] = self.current
        if len(self._removed) > self._tombstones_max:
            self._drop_old_tombstones()
        return self.current

    def since(self, epoch: str, revision: int) -> tuple[list[str], list[str]] | None:
        """Keys (changed, removed) after `revision`; None when the list would not be complete."""
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
        """Whether all changes after this revision are known, removals too."""
        return epoch == self.epoch and self._floor <= revision <= self.current

    def touched(self, keys: Container[str], revision: int) -> bool:
        """Whether one of `keys` has changed or gone after `revision`; also when that is not known any more."""
        if not self.knows(self.epoch, revision):
            return True
        return any(key in keys for order in (self._changed, self._removed) for key in _newer(order, revision))

    def touch_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.touch(key)

    def _drop_old_tombstones(self) -> None:
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
