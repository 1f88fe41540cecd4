"""What must hold after every event of a history. The checker sees all disks and etcd at once, as nobody else does.

`truth` is the log up to the highest acknowledged byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.simulation.disk import Disk
from tests.simulation.etcd_model import EtcdModel

from twinlog.failover.records import EPOCH, IN_SYNC, InSync, history_name

if TYPE_CHECKING:
    from tests.simulation.group import Shape


class Violation(AssertionError):
    """A promise that did not hold."""


class Checker:
    def __init__(self, etcd: EtcdModel, disks: dict[str, Disk], shape: Shape) -> None:
        self._etcd = etcd
        self._disks = disks
        self._shape = shape
        self._masters: dict[int, tuple[str, int]] = {}
        self._set_changed = 0
        self._forced_alone = False  # an operator left one copy; a power cut may take it
        self.truth = b""
        self.acks = 0
        self.last_ack_ms = 0.0
        etcd.on_write = self.etcd_written

    def acknowledged(self, name: str, epoch: int, end: int, now_ms: float) -> None:
        """The master `name` answers OK to sends whose records end at `end`."""
        self.acks += 1
        self.last_ack_ms = now_ms
        newest = self._number(EPOCH)
        if epoch < newest:
            raise Violation(f"{name} acknowledges in epoch {epoch}, but the epoch is {newest}")
        if self._shape.awaits_replicas:
            self._holds(name, "acknowledges")
            self.truth = max(self.truth, bytes(self._disks[name].log[:end]), key=len)
            self.check_set()

    def promoted(self, name: str, life: int, epoch: int) -> None:
        """`name` accepts sends as master of `epoch`."""
        if self._masters.setdefault(epoch, (name, life)) != (name, life):
            raise Violation(f"epoch {epoch} has two masters: {self._masters[epoch]} and {(name, life)}")
        if self._shape.awaits_replicas:
            self._holds(name, "becomes master")

    def etcd_written(self) -> None:
        entry = self._etcd.entries.get(IN_SYNC)
        if entry is not None and entry.changed != self._set_changed:
            self._set_changed = entry.changed
            self._forget_what_was_forced()
            self.check_set()

    def check_set(self) -> None:
        """Every member of the in-sync set holds everything acknowledged, unless its machine has lost it."""
        entry = self._etcd.entries.get(IN_SYNC)
        if entry is None or not self._shape.awaits_replicas:
            return
        members = msgspec.json.decode(entry.value, type=InSync).members
        self._forced_alone = self._forced_alone and len(members) < self._shape.size_min
        if self._forced_alone and not any(self._disks[name].is_whole for name in members):
            self.truth = self._agreeing(members[0])
        for name in members:
            if self._disks[name].is_whole:
                self._holds(name, "is in sync")

    def offset_went_back(self, name: str, before: int, after: int) -> None:
        raise Violation(f"a consumer's offset goes back from {before} to {after} at {name}")

    def _holds(self, name: str, what: str) -> None:
        same = len(self._agreeing(name))
        if same < len(self.truth):
            raise Violation(
                f"{name} {what}, but its log agrees only up to {same} of {len(self.truth)} acknowledged bytes"
            )

    def _agreeing(self, name: str) -> bytes:
        """The part of the truth that the log of `name` begins with."""
        disk = self._disks[name]
        log = bytes(disk.log[: disk.synced] if self._shape.syncs_first else disk.log)
        if log.startswith(self.truth):
            return self.truth
        same = next((n for n, (a, b) in enumerate(zip(log, self.truth, strict=False)) if a != b), len(log))
        return self.truth[:same]

    def _forget_what_was_forced(self) -> None:
        """An operator may force a member that is not in sync: what it does not have is lost by intent."""
        epoch = self._number(EPOCH)
        history = self._etcd.entries.get(history_name(epoch))
        if history is not None and b"forced" in history.value and epoch not in self._masters:
            self.truth = self._agreeing(msgspec.json.decode(history.value)["member"])
            self._forced_alone = True

    def _number(self, name: str) -> int:
        entry = self._etcd.entries.get(name)
        return int(entry.value) if entry is not None else 0
