"""Timer messages as properties describe them: when one is due, how it is recalled, and which message it cancels.

A parked message carries TIMER_OUT_MS, its time rounded down to the precision, and one precision less when it was exact;
it is due one precision after that, so never before the time its sender asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.wire import properties as names
from twinlog.wire.codes import ResponseCode
from twinlog.wire.numbers import LONG_MAX
from twinlog.wire.values.recall_handle import RecallHandle

if TYPE_CHECKING:
    from twinlog.settings.store import StoreSettings

DELETE_KEY_SEPARATOR = "+"


@dataclass(frozen=True, slots=True)
class TimerRules:
    """The settings for timers."""

    enabled: bool = True
    precision_ms: int = 1_000
    delay_ms_max: int = 259_200_000

    @classmethod
    def of(cls, settings: StoreSettings) -> TimerRules:
        return cls(settings.timer_enabled, settings.timer_precision_ms, settings.timer_delay_seconds_max * 1_000)


def place_timer(pairs: dict[str, str], rules: TimerRules, now_ms: int) -> bool:
    """Set TIMER_OUT_MS of a message; False when it is due already.

    RequestRefused when timers are off, when the time is not a number or too far away, or when it cancels too late.
    """
    if not rules.enabled:
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
    deliver_ms = requested_time(pairs, now_ms)
    if deliver_ms is None or deliver_ms - now_ms > rules.delay_ms_max:
        raise _illegal(rules)
    if deliver_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in pairs:
            raise _illegal(rules)
        return False
    pairs[names.TIMER_OUT_MS] = str((deliver_ms - 1) // rules.precision_ms * rules.precision_ms)
    return True


def requested_time(pairs: Mapping[str, str], now_ms: int) -> int | None:
    """When the sender wants the message delivered; None when its properties have no valid time."""
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


def recall_handle(broker_name: str, pairs: Mapping[str, str]) -> str | None:
    """The handle for a message just parked as a timer; None for any other message."""
    out_ms, topic, key = pairs.get(names.TIMER_OUT_MS), pairs.get(names.REAL_TOPIC), pairs.get(names.UNIQ_KEY)
    time_ms = None if out_ms is None else _long(out_ms)
    if time_ms is None or topic is None or key is None:
        return None
    return RecallHandle(topic, broker_name, time_ms + 1, key).encode()


def delete_key(topic: str, unique_key: str) -> str:
    """What a cancelling message carries in TIMER_DEL_UNIQKEY."""
    return f"{topic}{DELETE_KEY_SEPARATOR}{unique_key}"


def message_key(pairs: Mapping[str, str]) -> str | None:
    """The form in which a cancelling message names this parked message; None if it has no key."""
    key, topic = pairs.get(names.UNIQ_KEY), pairs.get(names.REAL_TOPIC)
    return delete_key(topic, key) if key and topic else None


def cancelled_key(pairs: Mapping[str, str]) -> str | None:
    """The key of the message that this one cancels; None for any other message.

    Old clients leave out the topic. It is that of the cancelling message in any case: who may send to one topic must
    not cancel what others have sent to another.
    """
    cancelled, topic = pairs.get(names.TIMER_DEL_UNIQKEY), pairs.get(names.REAL_TOPIC, "")
    if cancelled is None:
        return None
    return cancelled if cancelled.startswith(delete_key(topic, "")) else delete_key(topic, cancelled)


def out_time(pairs: Mapping[str, str]) -> int | None:
    """TIMER_OUT_MS of a parked message; None when it is missing or not a number."""
    return _long(pairs.get(names.TIMER_OUT_MS, ""))


def _long(text: str) -> int | None:
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -LONG_MAX <= value <= LONG_MAX else None
