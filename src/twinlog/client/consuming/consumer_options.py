"""Settings of a push consumer, all with working defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from twinlog.base.system_names import TRACE_TOPIC
from twinlog.client.consuming.listener import Consuming
from twinlog.client.consuming.process_queue import CacheLimits
from twinlog.client.consuming.rebalance import Allocate, allocate_averagely
from twinlog.client.errors import BadArgument
from twinlog.client.hooks import Hook


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
    batch_count_max: int = 0  # above 0 the listener gets lists of at most so many messages of one queue
    allocate: Allocate = allocate_averagely  # which queues a member reads; the same for all members of a group
    retries_max: int = -1  # then the dead letters; -1: as the group is set up (16), orderly: for ever
    retry_pause_ms: int = 1_000  # orderly: before the same message is tried again
    pull_count_max: int = 32
    hold_ms: int = 15_000  # how long the broker may wait for new messages
    commit_ms: int = 5_000
    limits: CacheLimits = field(default_factory=CacheLimits)
    offsets_directory: Path | None = None  # broadcasting; ~/.twinlog/offsets by default
    close_ms_max: int = 10_000  # how long close() waits for running listener calls
    hooks: Sequence[Hook[Consuming]] = ()  # called around every listener call
    enable_trace: bool = False  # RocketMQ's message trace: when a message was consumed, and whether it failed
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.pull_count_max < 1 or self.batch_count_max < 0:
            text = f"concurrency={self.concurrency}, pull_count_max={self.pull_count_max}"
            raise BadArgument(f"{text} and batch_count_max={self.batch_count_max} must be 1, 1 and 0 at least")

    @property
    def needs_locks(self) -> bool:
        """Orderly members of a group must not read the same queue; without a group each reads all queues."""
        return self.orderly and not self.broadcasting
