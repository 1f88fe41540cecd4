"""Settings of a push consumer, all with working defaults."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from twinlog.client.consuming.process_queue import CacheLimits


class StartFrom(Enum):
    """Where a group that is new to a queue begins."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIME = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    orderly: bool = False  # one message at a time per queue, in order, and never past a failed one
    broadcasting: bool = False  # every member gets every message
    start_from: StartFrom = StartFrom.LAST
    start_time_ms: int | None = None  # for StartFrom.TIME; half an hour ago by default
    concurrency: int = 20  # listener calls at the same time
    retries_max: int = -1  # then the dead letters; -1: as the group is set up (16), orderly: for ever
    retry_pause_ms: int = 1_000  # orderly: before the same message is tried again
    pull_count_max: int = 32
    hold_ms: int = 15_000  # how long the broker may wait for new messages
    commit_ms: int = 5_000
    limits: CacheLimits = field(default_factory=CacheLimits)
    offsets_directory: Path | None = None  # broadcasting; ~/.twinlog/offsets by default
    close_ms_max: int = 10_000  # how long close() waits for running listener calls

    @property
    def needs_locks(self) -> bool:
        """Orderly members of a group must not read the same queue; without a group each reads all queues."""
        return self.orderly and not self.broadcasting
