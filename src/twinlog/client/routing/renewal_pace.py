"""How often a client asks the name server again for the route of a topic while requests fail. No clock.

The first failure asks at once. While the answer stays the same, each further question waits longer, up to a second: a
new master is found within a second of its registration, and a topic whose brokers are gone costs its name server one
question a second per client, however many sends fail. The pauses start over when the route changes, or after ten
seconds without a failure. Questions about many topics follow one another with a small gap, so that a client of a
thousand topics does not ask for all of them at once.
"""

from dataclasses import dataclass

PAUSE_MS_MIN = 100
PAUSE_MS_MAX = 1_000
_QUIET_MS = 10_000
_GAP_MS = 5


@dataclass(slots=True)
class _TopicPace:
    pause_ms: int
    next_ms: int


class RenewalPace:
    """When each topic may be asked for again."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicPace] = {}
        self._free_ms = 0  # when the next question about any topic may be asked

    def reserve(self, topic: str, now_ms: int) -> int:
        """How many milliseconds the next question about `topic` has to wait; its turn is reserved."""
        at_ms = max(now_ms, self._free_ms)
        self._free_ms = at_ms + _GAP_MS
        pace = self._topics.get(topic)
        if pace is not None and now_ms - pace.next_ms >= _QUIET_MS:
            del self._topics[topic]
        elif pace is not None:
            at_ms = max(at_ms, pace.next_ms)
        return at_ms - now_ms

    def asked(self, topic: str, now_ms: int, *, changed: bool) -> None:
        """A question was answered or failed; `changed` if the route is another one now."""
        pace = self._topics.get(topic)
        if pace is None or changed:
            pause_ms = PAUSE_MS_MIN
        else:
            pause_ms = min(pace.pause_ms * 2, PAUSE_MS_MAX)
        self._topics[topic] = _TopicPace(pause_ms, now_ms + pause_ms)
