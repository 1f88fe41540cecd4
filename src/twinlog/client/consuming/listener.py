"""Calls the user's function with a message, and interprets what it returns or raises."""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twinlog.client.hooks import Hook, entered
from twinlog.client.tasks import is_cancelled
from twinlog.telemetry.log import get_logger
from twinlog.wire.message import Message

log = get_logger(__name__)
Listen = Callable[[Message], Any | Awaitable[Any]]
ListenToMany = Callable[[list[Message]], Any | Awaitable[Any]]
RATE_SECONDS = 60


class Consumed(Enum):
    """What a listener may return; None means SUCCESS, an exception means RETRY."""

    SUCCESS = "success"
    RETRY = "retry"


class RetryLater(Exception):
    """Raise it in a listener to have the message again after a delay level; -1 means dead-letter it now."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"retry with delay level {delay_level}")
        self.delay_level = delay_level


class PartlyConsumed(Exception):
    """Raise it in a listener of many messages: the first `count` of them are consumed, the others come again."""

    def __init__(self, count: int, delay_level: int = 0) -> None:
        super().__init__(f"the first {count} messages are consumed")
        self.count, self.delay_level = count, delay_level


@dataclass(slots=True)
class Consuming:
    """One listener call, as hooks see it; `ok` and `error` are its outcome."""

    group: str
    messages: Sequence[Message]
    ok: bool = False
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class ListenerResult:
    """The result of one listener call."""

    ok: bool
    delay_level: int = 0  # 0: the broker decides by the number of attempts
    error: BaseException | None = None
    spent_ms: int = 0
    consumed: int = 0  # of a call that failed: so many messages from the first on are consumed


@dataclass(slots=True)
class ListenerReturn:
    """What a plain function returned or raised in a thread."""

    returned: Any
    error: BaseException | None
    spent_ms: int


_AT_ONCE = ListenerResult(True)  # of most calls


class Listener:
    """Runs coroutine functions on the loop and plain functions in threads, and measures both.

    With `many` the function gets lists of messages.
    """

    def __init__(
        self,
        listen: Listen | ListenToMany,
        concurrency: int,
        *,
        many: bool = False,
        group: str = "",
        hooks: Sequence[Hook[Consuming]] = (),
    ) -> None:
        called = listen if inspect.isroutine(listen) else getattr(listen, "__call__", listen)  # noqa: B004
        self.is_threaded = not inspect.iscoroutinefunction(called)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="consume") if self.is_threaded else None
        self._many = many
        self._listen: Callable[[Any], Any] = listen
        if hooks:
            hooked = _hooked_in_thread if self.is_threaded else _hooked
            self._listen = hooked(listen, group, hooks)
        self.meters: dict[str, Meter] = {}

    async def call(self, messages: list[Message]) -> ListenerResult:
        """Call the function with `messages`, and wait for its end."""
        started = time.monotonic()
        returned, error = None, None
        given = list(messages) if self._many else messages[0]  # a list of its own: the listener may change it
        try:
            if self._threads is None:
                returned = await self._listen(given)
            else:
                returned = await asyncio.get_running_loop().run_in_executor(self._threads, self._listen, given)
                if inspect.isawaitable(returned):
                    returned = await returned
        except asyncio.CancelledError:
            if is_cancelled():
                raise  # the consumer is stopping
            returned = Consumed.RETRY  # something inside the listener was cancelled
        except Exception as raised:  # the user's code: after any error the message comes again
            error = raised
        now = time.monotonic()
        return self._result(messages, returned, error, int((now - started) * 1000), now)

    def call_here(self, messages: list[Message]) -> ListenerReturn:
        """Call a plain function in this thread; pass what comes back to `settle` or `settle_later` in the loop."""
        started = time.monotonic()
        returned, error = None, None
        try:
            returned = self._listen(list(messages) if self._many else messages[0])
        except BaseException as raised:  # sys.exit() too: the thread must go on, and the message come again
            error = raised
        return ListenerReturn(returned, error, int((time.monotonic() - started) * 1000))

    def settle(self, messages: list[Message], back: ListenerReturn) -> ListenerResult | None:
        """The result of `call_here`; None when the function returned an awaitable, which `settle_later` awaits."""
        if back.returned is not None and inspect.isawaitable(back.returned):
            return None
        return self._result(messages, back.returned, back.error, back.spent_ms, time.monotonic())

    async def settle_later(self, messages: list[Message], back: ListenerReturn) -> ListenerResult:
        returned, error = None, None
        try:
            returned = await back.returned
        except asyncio.CancelledError:
            if is_cancelled():
                raise  # the consumer is stopping
            returned = Consumed.RETRY  # something inside the listener was cancelled
        except Exception as raised:
            error = raised
        return self._result(messages, returned, error, back.spent_ms, time.monotonic())

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _result(
        self, messages: list[Message], returned: Any, error: BaseException | None, spent_ms: int, now: float
    ) -> ListenerResult:
        topic = messages[0].topic
        meter = self.meters.get(topic)
        if meter is None:
            meter = self.meters[topic] = Meter()
        ok = error is None and returned is not Consumed.RETRY
        meter.add(ok, spent_ms, now, len(messages))
        if ok and not spent_ms:
            return _AT_ONCE
        if isinstance(error, RetryLater):
            return ListenerResult(False, error.delay_level, None, spent_ms)
        if isinstance(error, PartlyConsumed):
            consumed = min(max(error.count, 0), len(messages))
            return ListenerResult(consumed == len(messages), error.delay_level, None, spent_ms, consumed)
        if error is not None:
            ids = " ".join(message.message_id for message in messages)
            log.warning("a listener failed; the message will come again", id=ids, exc_info=error)
        return ListenerResult(ok, 0, error, spent_ms)


def _hooked(listen: Callable[[Any], Any], group: str, hooks: Sequence[Hook[Consuming]]) -> Callable[[Any], Any]:
    async def call(given: Message | list[Message]) -> Any:
        consuming = Consuming(group, [given] if isinstance(given, Message) else tuple(given))
        with entered(hooks, consuming):
            try:
                returned = await listen(given)
            except BaseException as error:
                consuming.error = error
                raise
            consuming.ok = returned is not Consumed.RETRY
            return returned

    return call


def _hooked_in_thread(
    listen: Callable[[Any], Any], group: str, hooks: Sequence[Hook[Consuming]]
) -> Callable[[Any], Any]:
    def call(given: Message | list[Message]) -> Any:
        consuming = Consuming(group, [given] if isinstance(given, Message) else tuple(given))
        with entered(hooks, consuming):
            try:
                returned = listen(given)
            except BaseException as error:
                consuming.error = error
                raise
            consuming.ok = returned is not Consumed.RETRY
            return returned

    return call


class Meter:
    """Consumption of one topic in the last minute, second by second."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()  # [second, successes, failures, milliseconds]
        self.failed_total = 0

    def add(self, ok: bool, spent_ms: int, now: float, count: int = 1) -> None:
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._trim(now)
            self._seconds.append([int(now), 0, 0, 0])
        self._seconds[-1][1 if ok else 2] += count
        self._seconds[-1][3] += spent_ms
        self.failed_total += 0 if ok else count

    def rates(self, now: float) -> tuple[float, float, float]:
        """(successes a second, failures a second, average milliseconds)."""
        self._trim(now)
        good, bad, spent = (sum(second[i] for second in self._seconds) for i in (1, 2, 3))
        return good / RATE_SECONDS, bad / RATE_SECONDS, spent / (good + bad) if good + bad else 0.0

    def _trim(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] <= now - RATE_SECONDS:
            self._seconds.popleft()
