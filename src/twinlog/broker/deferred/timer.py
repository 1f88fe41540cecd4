"""Timer messages: when they are due, which are delivered already, and how that is remembered.

A parked message carries TIMER_OUT_MS, its time rounded down to the precision, and one precision less when it was exact;
it is due one precision after that, so never before the time its sender asked for.

Two numbers say what is delivered, the same two that Java keeps in config/timercheck: a message of the wheel queue is
delivered when its queue offset is below `queue_offset` and its slot is before `read_time_ms`. The rest is pending.
"""

from __future__ import annotations

import base64
import heapq
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.wire import properties as names
from twinlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from twinlog.settings.store import StoreSettings

DELETE_KEY_SEPARATOR = "+"
_JAVA_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TimerRules:
    """What an operator allows of timers."""

    enabled: bool = True
    precision_ms: int = 1_000
    delay_ms_max: int = 259_200_000

    @classmethod
    def of(cls, settings: StoreSettings) -> TimerRules:
        return cls(settings.timer_enabled, settings.timer_precision_ms, settings.timer_delay_seconds_max * 1_000)


def place_timer(pairs: dict[str, str], rules: TimerRules, now_ms: int) -> bool:
    """Give a message its TIMER_OUT_MS; False when its time has come already and it need not wait.

    RequestRefused when timers are off, the time is no number or too far away, or it would cancel too late.
    """
    if not rules.enabled:
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
    deliver_ms = wished_time(pairs, now_ms)
    if deliver_ms is None or deliver_ms - now_ms > rules.delay_ms_max:
        raise _illegal(rules)
    if deliver_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in pairs:
            raise _illegal(rules)
        return False
    pairs[names.TIMER_OUT_MS] = str((deliver_ms - 1) // rules.precision_ms * rules.precision_ms)
    return True


def wished_time(pairs: Mapping[str, str], now_ms: int) -> int | None:
    """When the sender wants the message delivered; None when it does not say in numbers."""
    for name, base_ms, unit_ms in (
        (names.TIMER_DELAY_SEC, now_ms, 1_000),
        (names.TIMER_DELAY_MS, now_ms, 1),
        (names.TIMER_DELIVER_MS, 0, 1),
    ):
        text = pairs.get(name)
        if text is not None:
            value = _long(text)
            return None if value is None else base_ms + value * unit_ms
    return None


def _illegal(rules: TimerRules) -> RequestRefused:
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"timer message illegal, the delay time should not be bigger than the max delay {rules.delay_ms_max}ms; "
        "or if set del msg, the delay time should be bigger than the current time",
    )


# -- recall handles ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What a producer must show to take a timer message back."""

    topic: str
    broker_name: str
    time_ms: int
    unique_key: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.time_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def recall_handle(broker_name: str, pairs: Mapping[str, str]) -> str | None:
    """The handle for a message just parked as a timer; None for any other message."""
    out_ms, topic, key = pairs.get(names.TIMER_OUT_MS), pairs.get(names.REAL_TOPIC), pairs.get(names.UNIQ_KEY)
    time_ms = None if out_ms is None else _long(out_ms)
    if time_ms is None or topic is None or key is None:
        return None
    return RecallHandle(topic, broker_name, time_ms + 1, key).encode()


def parse_recall_handle(text: str) -> RecallHandle | None:
    """The handle in `text`; None when it is none."""
    try:
        words = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(" ")
    except (ValueError, UnicodeDecodeError):
        return None
    if len(words) != 5 or words[0] != "v1" or _long(words[3]) is None:
        return None
    return RecallHandle(words[1], words[2], int(words[3]), words[4])


def delete_key(topic: str, unique_key: str) -> str:
    """What a cancelling message carries in TIMER_DEL_UNIQKEY."""
    return f"{topic}{DELETE_KEY_SEPARATOR}{unique_key}"


# -- what is pending ---------------------------------------------------------------------------------


class TimerTable:
    """Pending messages of the wheel queue by slot, eight bytes each.

    Invariant: every message below `queue_offset` is in a slot or delivered, and all slots before `read_time_ms` are
    delivered. `add` takes offsets in rising order.
    """

    def __init__(self, precision_ms: int, *, read_time_ms: int = 0, queue_offset: int = 0) -> None:
        self.precision_ms = precision_ms
        self.read_time_ms = read_time_ms
        self.queue_offset = queue_offset
        self._slots: dict[int, array[int]] = {}
        self._times: list[int] = []  # a heap of the slots' times
        self._taken = 0  # how many of the first slot are delivered
        self._replaced: dict[str, int] = {}  # message key -> offset of the message that replaces or cancels it

    def __len__(self) -> int:
        return sum(map(len, self._slots.values())) - self._taken

    def slot_of(self, out_ms: int) -> int:
        """The slot of a time; only a foreign client's time is not on the grid already, and waits a little longer."""
        return -(-out_ms // self.precision_ms) * self.precision_ms

    def add(self, queue_offset: int, out_ms: int) -> None:
        slot = self.slot_of(out_ms)
        offsets = self._slots.get(slot)
        if offsets is None:
            if self._times and slot < self._times[0]:
                self._drop_taken()
            offsets = self._slots[slot] = array("q")
            heapq.heappush(self._times, slot)
        offsets.append(queue_offset)

    def replace(self, key: str, queue_offset: int) -> None:
        """Messages with this key before `queue_offset` must not be delivered any more."""
        self._replaced[key] = queue_offset

    def is_replaced(self, key: str | None, bare_key: str | None, queue_offset: int) -> bool:
        """Whether a later message took the place of this one; `bare_key` is the form without its topic."""
        return any(self._replaced.get(one, -1) > queue_offset for one in (key, bare_key) if one)

    def forget_replacement(self, key: str, queue_offset: int) -> None:
        if self._replaced.get(key) == queue_offset:
            del self._replaced[key]

    def first_due(self, now_ms: int) -> int | None:
        """The queue offset to deliver next, or None while nothing is due; `delivered` moves on."""
        if not self._times or self._times[0] + self.precision_ms > now_ms:
            return None
        return self._slots[self._times[0]][self._taken]

    def delivered(self) -> None:
        """What `first_due` returned is stored in its real queue, or can never be."""
        self._taken += 1
        if self._taken == len(self._slots[self._times[0]]):
            del self._slots[heapq.heappop(self._times)]
            self._taken = 0

    def caught_up(self, now_ms: int) -> None:
        """Nothing is due at `now_ms`: every slot that far is delivered."""
        assert self.first_due(now_ms) is None, "caught_up after first_due returned None"
        self.read_time_ms = max(self.read_time_ms, now_ms // self.precision_ms * self.precision_ms)

    @property
    def delivered_before_ms(self) -> int:
        """Every slot before this time is delivered; a message that came in late holds it back."""
        return min(self.read_time_ms, self._times[0]) if self._times else self.read_time_ms

    @property
    def wake_ms(self) -> int | None:
        """When `first_due` next has an answer."""
        return self._times[0] + self.precision_ms if self._times else None

    @property
    def low_offset(self) -> int:
        """No message before this queue offset is pending."""
        if not self._times:
            return self.queue_offset
        self._drop_taken()
        return min(offsets[0] for offsets in self._slots.values())

    def before(self, queue_offset: int) -> list[int]:
        """The pending messages before `queue_offset`, in order."""
        if not self._times:
            return []
        self._drop_taken()
        return sorted(offset for offsets in self._slots.values() for offset in offsets if offset < queue_offset)

    def drop_before(self, queue_offset: int) -> None:
        """Forget the pending messages before `queue_offset`: they are parked anew at the end of the queue."""
        self._drop_taken()
        for slot in [slot for slot, offsets in self._slots.items() if offsets[0] < queue_offset]:
            kept = array("q", (offset for offset in self._slots[slot] if offset >= queue_offset))
            if kept:
                self._slots[slot] = kept
            else:
                del self._slots[slot]
                self._times.remove(slot)
        heapq.heapify(self._times)

    def _drop_taken(self) -> None:
        if self._taken:
            slot = self._times[0]
            self._slots[slot] = self._slots[slot][self._taken :]
            self._taken = 0


def message_keys(pairs: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The two forms by which a cancelling message may name a message: with its topic, and bare."""
    key, topic = pairs.get(names.UNIQ_KEY), pairs.get(names.REAL_TOPIC)
    return (delete_key(topic, key) if key and topic else None), key


def out_time(pairs: Mapping[str, str]) -> int | None:
    """TIMER_OUT_MS of a parked message, or None when there is none that can be read."""
    return _long(pairs.get(names.TIMER_OUT_MS, ""))


def _long(text: str) -> int | None:
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -_JAVA_LONG_MAX <= value <= _JAVA_LONG_MAX else None
