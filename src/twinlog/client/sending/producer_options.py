"""Settings of a producer, all with working defaults."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.base.system_names import TRACE_TOPIC
from twinlog.client.errors import BadArgument
from twinlog.client.hooks import Hook
from twinlog.client.sending.outgoing import DELAY_LEVEL_MAX
from twinlog.client.sending.send_hooks import Sending


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    send_timeout_ms: int = 3_000  # of one send with all its retries
    retries: int = 2  # after failures that may have stored the message; others are repeated within the time
    new_topic_queues: int = 4  # when the first message creates its topic
    compress_above_bytes: int = 4096  # 0 never compresses
    compression: str = "zlib"  # or lz4, zstd, which only 5.x clients read
    compression_level: int = 5
    message_bytes_max: int = 4 * 1024 * 1024
    delay_level_max: int = DELAY_LEVEL_MAX  # raise it for brokers with a longer messageDelayLevel
    avoid_ms: int = 10_000  # how long a broker that failed is avoided
    auto_batch: bool = False  # gathers sends of one topic, tag and queue into one request
    batch_hold_ms: int = 10  # how long the first of them waits for others
    batch_bytes_max: int = 32 * 1024  # of bodies; a request that has more leaves at once
    batch_total_bytes_max: int = 32 * 1024 * 1024  # of bodies on their way; above this a message is sent alone
    hooks: Sequence[Hook[Sending]] = ()  # called around every send
    enable_trace: bool = False  # RocketMQ's message trace: when a message was sent, and where it is stored
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        """The same limits as Java's."""
        if not 1 <= self.batch_hold_ms <= 30_000:
            raise BadArgument(f"batch_hold_ms={self.batch_hold_ms} is outside 1..30000")
        if not 1 <= self.batch_bytes_max <= 2 * 1024 * 1024:
            raise BadArgument(f"batch_bytes_max={self.batch_bytes_max} is outside 1..{2 * 1024 * 1024}")
        if self.batch_total_bytes_max < 1:
            raise BadArgument(f"batch_total_bytes_max={self.batch_total_bytes_max} is below 1")
