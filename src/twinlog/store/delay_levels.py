"""Delay levels: how long a message of SCHEDULE_TOPIC_XXXX waits.

The consume queue of that topic keeps the delivery time in place of a tag hash, so the store needs the
levels to build it. Master and replica must agree on messageDelayLevel.
"""

from __future__ import annotations

from twinlog.settings.durations import parse_delay_levels
from twinlog.settings.store import StoreSettings
from twinlog.wire.properties import DELAY, NAME_END, PAIR_END, property_value

_DEFAULT_LEVELS = StoreSettings().delay_levels
_UNKNOWN_LEVEL_MS = 1_000
_PAIR_END = PAIR_END.encode()
_START = f"{PAIR_END}{DELAY}{NAME_END}".encode()


class DelayLevels:
    """Milliseconds of each level; level numbers start at 1."""

    def __init__(self, text: str = _DEFAULT_LEVELS) -> None:
        self.ms = dict(enumerate(parse_delay_levels(text), start=1))
        self._usual = {str(level).encode(): ms for level, ms in self.ms.items()}  # as all clients write them

    @property
    def level_max(self) -> int:
        return len(self.ms)

    def delivery_time(self, properties: bytes | memoryview, store_timestamp: int, otherwise: int) -> int:
        """When a parked message is due; `otherwise` if its properties name no level."""
        data = bytes(properties)
        at = data.rfind(_START)
        begin = at + len(_START)
        end = data.find(_PAIR_END, begin)
        if at >= 0 and end >= 0 and (usual_ms := self._usual.get(data[begin:end])) is not None:
            return store_timestamp + usual_ms
        try:
            level = min(int(property_value(data, DELAY) or "0"), self.level_max)
        except ValueError:
            return otherwise
        return store_timestamp + self.ms.get(level, _UNKNOWN_LEVEL_MS) if level > 0 else otherwise
