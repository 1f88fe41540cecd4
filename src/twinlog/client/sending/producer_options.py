"""Settings of a producer, all with working defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    send_timeout_ms: int = 3_000  # of one send with all its retries
    retries: int = 2  # after failures that may have stored the message; others are repeated within the time
    new_topic_queues: int = 4  # when the first message creates its topic
    compress_above_bytes: int = 4096  # 0 never compresses
    compression: str = "zlib"  # or lz4, zstd, which only 5.x clients read
    compression_level: int = 5
    message_bytes_max: int = 4 * 1024 * 1024
    avoid_ms: int = 10_000  # how long a broker that failed is avoided
