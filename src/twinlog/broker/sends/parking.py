"""Messages that wait before consumers may see them: where a send parks them, and how its draft is rewritten.

    DELAY=n                        -> SCHEDULE_TOPIC_XXXX, queue n - 1
    TIMER_DELAY_SEC / _MS / DELIVER -> rmq_sys_wheel_timer, queue 0
    TRAN_MSG=true                  -> RMQ_SYS_TRANS_HALF_TOPIC, queue 0

The properties REAL_TOPIC and REAL_QID keep the queue it belongs to. A half message is not delayed; the message that its
commit stores is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from twinlog.base.system_names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from twinlog.broker.sends.timer_rules import TimerRules, place_timer
from twinlog.net.errors import RequestRefused
from twinlog.store.delay_levels import DelayLevels
from twinlog.store.log.append import Draft
from twinlog.wire import properties as names
from twinlog.wire.codes import ResponseCode
from twinlog.wire.message import Message
from twinlog.wire.properties import PROPERTIES_BYTES_MAX, encode_properties
from twinlog.wire.values.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext

_TIMER_PROPERTIES = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


OnParked = Callable[[str, int], None]  # (the topic a message waits in, the earliest time it can be due)


def install(ctx: BrokerContext, on_parked: OnParked = lambda topic, due_ms: None) -> None:
    """Make `ctx` park delayed, timed and half messages by these rules; `on_parked` wakes the service that delivers."""
    levels = DelayLevels(ctx.conf.store.delay_levels)

    def park_delayed(draft: Draft, pairs: dict[str, str]) -> None:
        now_ms = ctx.clock_ms()
        delay_ms = park(draft, pairs, levels, TimerRules.of(ctx.conf.store), now_ms)
        if delay_ms is not None:
            on_parked(draft.topic, now_ms + delay_ms)

    def wake_level(level: int) -> None:
        on_parked(SCHEDULE_TOPIC, ctx.clock_ms() + levels.ms[level])

    ctx.put_hooks.append(park_delayed)
    ctx.prepare = prepare_half
    ctx.delay_level_max, ctx.wake_delay_level = levels.level_max, wake_level


def park(draft: Draft, pairs: dict[str, str], levels: DelayLevels, timers: TimerRules, now_ms: int) -> int | None:
    """Redirect `draft` when its properties ask for a delay; returns how long it waits at least.

    None when it does not wait; RequestRefused when its delay is invalid.
    """
    if draft.topic == HALF_TOPIC or draft.sys_flag & TRANSACTION_MASK not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
        return None
    level = delay_level(pairs)
    if level > 0:
        for name in _TIMER_PROPERTIES:  # Java: a level wins over a time
            pairs.pop(name, None)
        level = min(level, levels.level_max)
        pairs[names.DELAY] = str(level)
        move(draft, pairs, SCHEDULE_TOPIC, level - 1)
        return levels.ms[level]
    if wants_timer(draft.topic, pairs) and place_timer(pairs, timers, now_ms):
        move(draft, pairs, TIMER_TOPIC, 0)
        return int(pairs[names.TIMER_OUT_MS]) + timers.precision_ms - now_ms
    return None


def delay_level(pairs: Mapping[str, str]) -> int:
    """The delay level of a message; 0 when it has none."""
    text = pairs.get(names.DELAY)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        remark = f"property {names.DELAY}={text} is not a delay level; send a whole number, 1 is the first level"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from None


def wants_timer(topic: str, pairs: Mapping[str, str]) -> bool:
    if topic == TIMER_TOPIC or names.TIMER_OUT_MS in pairs:
        return False
    return any(name in pairs for name in _TIMER_PROPERTIES)


def prepare_half(draft: Draft, pairs: dict[str, str]) -> None:
    """Turn `draft` into a half message: consumers see it only after its producer commits it."""
    if unique_key := pairs.get(names.UNIQ_KEY):
        pairs[names.TRANSACTION_ID] = unique_key
    draft.sys_flag &= ~TRANSACTION_MASK
    move(draft, pairs, HALF_TOPIC, 0)
    draft.properties = encode_properties(pairs)


def move(draft: Draft, pairs: dict[str, str], topic: str, queue_id: int) -> None:
    """Move `draft` to another queue and note in its properties the queue it belongs to."""
    pairs[names.REAL_TOPIC], pairs[names.REAL_QID] = draft.topic, str(draft.queue_id)
    draft.topic, draft.queue_id = topic, queue_id


class Parked(Protocol):
    """A message that waits, decoded whole or in part."""

    @property
    def properties(self) -> dict[str, str]: ...


def real_place(message: Parked) -> tuple[str, int] | None:
    """(topic, queue) of a parked message; None when its properties lack them, or name a topic for parking."""
    topic, queue = message.properties.get(names.REAL_TOPIC), message.properties.get(names.REAL_QID, "")
    if not topic or topic in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC) or not (queue.isdecimal() and len(queue) < 10):
        return None
    return topic, int(queue)


def redelivery(message: Message, topic: str, queue_id: int, properties: Mapping[str, str] | None = None) -> Draft:
    """A draft with the body, sender, times and flags of `message`, for another queue."""
    encoded = encode_properties(message.properties if properties is None else properties)
    if len(encoded) > PROPERTIES_BYTES_MAX:  # the added properties only inform: deliver without them
        encoded = encode_properties(message.properties)
    return Draft(
        topic,
        queue_id,
        message.body,
        encoded,
        message.born_host,
        message.born_timestamp,
        message.flag,
        message.sys_flag,
        message.reconsume_times,
    )
