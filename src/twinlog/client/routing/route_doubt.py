"""How often the route of a topic is asked for while something at its end fails, without a clock.

The first doubt asks at once. While the answer stays the same, each next question waits longer, up to a second: a new
master is found within a second of its registration, and a topic whose brokers are gone costs its name server one
question a second per client, however many sends fail. A changed route, or ten quiet seconds, start over. Questions
about many topics follow one another with a small gap, so a client of a thousand topics does not ask all at once.
"""

from dataclasses import dataclass

PAUSE_MS_MIN = 100
PAUSE_MS_MAX = 1_000
_QUIET_MS = 10_000
_GAP_MS = 5


@dataclass(slots=True)
class _Pace:
    pause_ms: int
    next_ms: int


class RouteDoubt:
    """When each topic may be asked about again."""

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}
        self._free_ms = 0  # when the next question about any topic may be asked

    def reserve(self, topic: str, now_ms: int) -> int:
        """How long the next question about `topic` has to wait; its turn is taken then."""
        at_ms = max(now_ms, self._free_ms)
        self._free_ms = at_ms + _GAP_MS
        pace = self._paces.get(topic)
        if pace is not None and now_ms - pace.next_ms >= _QUIET_MS:
            del self._paces[topic]
        elif pace is not None:
            at_ms = max(at_ms, pace.next_ms)
        return at_ms - now_ms

    def asked(self, topic: str, now_ms: int, *, changed: bool) -> None:
        """A question was answered, or could not be; `changed` when the route is another one now."""
        pace = self._paces.get(topic)
        if pace is None or changed:
            pause_ms = PAUSE_MS_MIN
        else:
            pause_ms = min(pace.pause_ms * 2, PAUSE_MS_MAX)
        self._paces[topic] = _Pace(pause_ms, now_ms + pause_ms)
