"""The steps of histograms, as Java's brokers have them, so that one dashboard fits both."""

from __future__ import annotations

MESSAGE_BYTES = (1024, 4096, 512 * 1024, 1024**2, 2 * 1024**2, 4 * 1024**2)
LARGE_BYTES = MESSAGE_BYTES[0]  # most messages are smaller, and are not counted by size
MEDIUM_BYTES = MESSAGE_BYTES[1]  # most of the others are not larger than this: the fast path counts them itself
RPC_MS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
