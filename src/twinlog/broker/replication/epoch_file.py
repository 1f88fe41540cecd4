"""config/twinlogEpoch: the epochs of the masters that this broker was, or knows of."""

from __future__ import annotations

from pathlib import Path

import msgspec

from twinlog.base.atomic_file import replace_file
from twinlog.base.file_modes import Modes
from twinlog.base.safe_files import read_file
from twinlog.replication.master_epoch import EpochFileBroken, MasterEpochs, Replaced
from twinlog.store.errors import StoreUnusable, system_errors_as
from twinlog.wire.numbers import Long

_NAME = Path("config", "twinlogEpoch")


class _Content(msgspec.Struct, rename="camel"):
    broker_name: str
    own: Long
    seen: Long
    is_replica: bool


class EpochFile:
    """The epochs, in memory and on disk. Invariant: `now` is what the file has.

    Epochs belong to the brokers of one name: a store that gets another brokerName begins with none.
    """

    def __init__(self, root: Path, broker_name: str, modes: Modes) -> None:
        self._path = root / _NAME
        self._broker_name = broker_name
        self._modes = modes
        self.is_missing = False
        with system_errors_as(StoreUnusable, root):
            self.now = self._load()

    def start_as_master(self) -> bool:
        """Whether this start is a promotion: the broker ran as a replica before. Replaced when it must not start."""
        if self.now.is_replaced:
            raise Replaced(self._broker_name, self.now.own, self.now.seen)
        if self.now.is_replica:
            self.promote()
            return True
        return False

    def promote(self, epoch: int | None = None) -> int:
        """Take this epoch as this broker's own; None: the next one."""
        self._save(self.now.promoted(epoch))
        return self.now.own

    def follow(self) -> None:
        """This broker is a replica from now on."""
        self._save(self.now.following())

    def saw(self, epoch: int) -> None:
        """Remember the epoch of another master."""
        self._save(self.now.saw(epoch))

    def _save(self, epochs: MasterEpochs) -> None:
        if epochs != self.now:
            text = msgspec.json.encode(_Content(self._broker_name, epochs.own, epochs.seen, epochs.is_replica))
            replace_file(self._path, [text, b"\n"], self._modes)
            self.now = epochs

    def _load(self) -> MasterEpochs:
        try:
            data = read_file(self._path)
        except FileNotFoundError:
            self.is_missing = True
            return MasterEpochs()
        try:
            content = msgspec.json.decode(data, type=_Content)
        except (ValueError, RecursionError) as error:
            raise EpochFileBroken(self._path, error) from error
        if content.broker_name != self._broker_name:
            return MasterEpochs()
        return MasterEpochs(content.own, content.seen, content.is_replica)


def forget_epochs(root: Path) -> None:
    """Let a stopped broker follow any master: its operator has decided which log counts."""
    (root / _NAME).unlink(missing_ok=True)
