"""The client for programs without asyncio: the same names, with blocking calls.

    from twinlog.client.sync import Producer

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send(Outgoing("Orders", b"one tea"))

Each object runs its own event loop in a background thread from `start` to `close`. Calls are safe
from any thread, except from inside a listener that is a coroutine.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from twinlog import client
from twinlog.client import (
    TAG,
    ClientOptions,
    ConsumerOptions,
    Message,
    MessageQueue,
    Outcome,
    Outgoing,
    ProducerOptions,
    PullResult,
    SendResult,
    TransactionResult,
)
from twinlog.client.consuming.listener import Listen
from twinlog.client.errors import ClientClosed
from twinlog.client.loop_thread import LoopThread
from twinlog.client.sending.sender import Selector

T = TypeVar("T")


class _Client(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Client)


class _InThread(Generic[C]):
    """An asynchronous client, and the thread that runs its event loop."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._client: C | None = None
        self._loop: LoopThread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        self._loop = LoopThread(type(self).__name__)

        async def start() -> C:
            made = self._make()
            await made.start()
            return made

        try:
            self._client = self._wait(start())
        except BaseException:
            self._stop_loop()
            raise

    def close(self) -> None:
        """Close the client and end its thread; safe to call twice."""
        if self._loop is None:
            return
        try:
            if self._client is not None and self._loop.is_running:
                self._wait(self._client.close())
        finally:
            self._client = None
            self._stop_loop()

    @property
    def _running(self) -> C:
        if self._client is None:
            raise ClientClosed(type(self).__name__)
        return self._client

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise ClientClosed(type(self).__name__)
        return self._loop.call(work)

    def _stop_loop(self) -> None:
        loop, self._loop = self._loop, None
        assert loop is not None
        loop.stop()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


class Producer(_InThread[client.Producer]):
    """Like `client.Producer`."""

    def __init__(
        self,
        name_servers: str,
        group: str = "DEFAULT_PRODUCER",
        *,
        options: ClientOptions | None = None,
        producer_options: ProducerOptions | None = None,
        check_transaction: Callable[[Message], Outcome] | None = None,
    ) -> None:
        super().__init__(
            lambda: client.Producer(
                name_servers,
                group,
                options=options,
                producer_options=producer_options,
                check_transaction=check_transaction,
            )
        )

    def send(
        self,
        message: Outgoing,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        return self._wait(self._running.send(message, queue=queue, selector=selector, timeout_ms=timeout_ms))

    def send_batch(
        self, messages: Sequence[Outgoing], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        return self._wait(self._running.send_batch(messages, queue=queue, timeout_ms=timeout_ms))

    def send_oneway(self, message: Outgoing, *, queue: MessageQueue | None = None) -> str:
        return self._wait(self._running.send_oneway(message, queue=queue))

    def send_in_transaction(self, message: Outgoing, local: Callable[[Outgoing], Outcome]) -> TransactionResult:
        async def in_thread(sent: Outgoing) -> Outcome:
            return await asyncio.to_thread(local, sent)

        return self._wait(self._running.send_in_transaction(message, in_thread))

    def request(self, message: Outgoing, *, timeout_ms: int = 3_000) -> Message:
        return self._wait(self._running.request(message, timeout_ms=timeout_ms))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._wait(self._running.queues(topic))


class PullConsumer(_InThread[client.PullConsumer]):
    """Like `client.PullConsumer`."""

    def __init__(
        self, name_servers: str, group: str, *, options: ClientOptions | None = None, register: bool = True
    ) -> None:
        super().__init__(lambda: client.PullConsumer(name_servers, group, options=options, register=register))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._wait(self._running.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int = 32,
        wait_ms: int = 0,
        expression: str = "*",
        expression_type: str = TAG,
    ) -> PullResult:
        return self._wait(
            self._running.pull(
                queue,
                offset,
                count_max=count_max,
                wait_ms=wait_ms,
                expression=expression,
                expression_type=expression_type,
            )
        )

    def messages(self, queue: MessageQueue, start: int, end: int) -> Iterator[Message]:
        found = self._running.messages(queue, start, end)
        while True:
            try:
                yield self._wait(_awaited(anext(found)))
            except StopAsyncIteration:
                return

    def assign(self, positions: dict[MessageQueue, int]) -> None:
        self._on_loop(self._running.assign, positions)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._on_loop(self._running.seek, queue, offset)

    def position(self, queue: MessageQueue) -> int:
        return self._running.position(queue)

    def poll(self, timeout_ms: int = 1_000, *, count_max: int = 32) -> list[Message]:
        return self._wait(self._running.poll(timeout_ms, count_max=count_max))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._wait(self._running.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        return self._wait(self._running.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        return self._wait(self._running.offset_at(queue, timestamp_ms, upper=upper))

    def committed(self, queue: MessageQueue) -> int | None:
        return self._wait(self._running.committed(queue))

    def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        self._wait(self._running.commit(queue, offset))

    def _on_loop(self, call: Callable[..., None], *args: object) -> None:
        async def run() -> None:
            call(*args)

        self._wait(run())


class PushConsumer(_InThread[client.PushConsumer]):
    """Like `client.PushConsumer`; the listener is called in threads."""

    def __init__(
        self,
        name_servers: str,
        group: str,
        listener: Listen,
        *,
        options: ClientOptions | None = None,
        consumer_options: ConsumerOptions | None = None,
    ) -> None:
        self._subscriptions: dict[str, tuple[str, str]] = {}

        def make() -> client.PushConsumer:
            made = client.PushConsumer(
                name_servers, group, listener, options=options, consumer_options=consumer_options
            )
            for topic, (expression, kind) in self._subscriptions.items():
                made.subscribe(topic, expression, kind)
            return made

        super().__init__(make)

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """As with the asynchronous consumer; before `start` or while it runs."""
        self._subscriptions[topic] = (expression, expression_type)
        if self._client is not None:
            running = self._client

            async def subscribe() -> None:
                running.subscribe(topic, expression, expression_type)

            self._wait(subscribe())

    def commit(self) -> None:
        self._wait(self._running.commit())


class Admin(_InThread[client.Admin]):
    """Every method of `client.Admin`, waiting for its result."""

    def __init__(self, name_servers: str, *, options: ClientOptions | None = None, timeout_ms: int = 5_000) -> None:
        super().__init__(lambda: client.Admin(name_servers, options=options, timeout_ms=timeout_ms))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(client.Admin, name, None)
        if name.startswith("_") or not inspect.iscoroutinefunction(method):
            raise AttributeError(f"Admin has no method {name!r}; see twinlog.client.Admin")

        @functools.wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            return self._wait(getattr(self._running, name)(*args, **named))

        return call
