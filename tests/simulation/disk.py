"""A broker's disk: what a stop of the process keeps, and what a stop of the machine loses.

The log is bytes; records have eight of them. What was written and not synced survives the end of the process, but a
power cut takes any part of it. Small files (epochs, intent) are replaced and synced in one go, as in the broker.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from twinlog.replication.master_epoch import MasterEpochs

RECORD_BYTES = 8


@dataclass
class Disk:
    log: bytearray = field(default_factory=bytearray)
    synced: int = 0  # the end of what is durable
    epochs: MasterEpochs = field(default_factory=MasterEpochs)
    cut_intent: int | None = None  # where the log is being cut
    boot: int = 0  # counts the starts of the machine
    whole_boot: int = 0  # in which the log was last known to have everything that was reported
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return self.boot == self.whole_boot

    def sync(self) -> None:
        self.synced = len(self.log)

    def cut(self, end: int) -> None:
        del self.log[end:]
        self.synced = min(self.synced, end)

    def lose_power(self, rng: random.Random, *, reports_are_synced: bool) -> None:
        kept = rng.randint(self.synced, len(self.log)) if rng.random() < 0.5 else self.synced
        del self.log[kept - kept % RECORD_BYTES :]
        self.synced = min(self.synced, len(self.log))
        self.boot += 1
        if reports_are_synced:  # then nothing that was reported can be missing
            self.whole_boot = self.boot

    def now_whole(self) -> None:
        self.whole_boot = self.boot


def record(epoch: int, number: int) -> bytes:
    return epoch.to_bytes(2, "big") + number.to_bytes(6, "big")
