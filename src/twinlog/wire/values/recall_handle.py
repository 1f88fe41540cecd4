"""The handle by which a producer recalls a timer message: URL-safe base64 of `v1 topic broker time key`."""

import base64
from dataclasses import dataclass

from twinlog.wire.numbers import LONG_MAX
from twinlog.wire.properties import PAIR_END


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What a producer sends to recall a timer message."""

    topic: str
    broker_name: str
    time_ms: int
    unique_key: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.time_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle | None:
    """The handle in `text`; None when it is not a valid one."""
    try:
        words = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(" ")
    except (ValueError, UnicodeDecodeError):
        return None
    if len(words) != 5 or words[0] != "v1" or PAIR_END in words[4]:  # the key becomes a property
        return None
    try:
        time_ms = int(words[3])
    except ValueError:
        return None
    return RecallHandle(words[1], words[2], time_ms, words[4]) if abs(time_ms) <= LONG_MAX else None
