"""Delay levels: how long a message of SCHEDULE_TOPIC_XXXX waits.

The consume queue of that topic keeps the delivery time in place of a tag hash, so the store needs the
levels to build it. Master and replica must agree on messageDelayLevel.
"""

from __future__ import annotations

from twinlog.settings.durations import parse_delay_levels
from twinlog.settings.store import StoreSettings
from twinlog.wire.properties import DELAY, property_value

_DEFAULT_LEVELS = StoreSettings().delay_levels
_UNKNOWN_LEVEL_MS = 1_000


class DelayLevels:
    """Milliseconds of each level; level numbers start at 1."""

    def __init__(self, text: str = _DEFAULT_LEVELS) -> None:
        self.ms = dict(enumerate(parse_delay_levels(text), start=1))

    @property
    def level_max(self) -> int:
        return len(self.ms)

    def delivery_time(self, properties: bytes | memoryview, store_timestamp: int, otherwise: int) -> int:
        """When a parked message is due; `otherwise` if its properties name no level."""
        try:
            level = min(int(property_value(properties, DELAY) or "0"), self.level_max)
        except ValueError:
            return otherwise
        return store_timestamp + self.ms.get(level, _UNKNOWN_LEVEL_MS) if level > 0 else otherwise
