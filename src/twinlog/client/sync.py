"""The client for programs without asyncio: the same names, with blocking calls.

    from twinlog.client.sync import Outgoing, Producer

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send(Outgoing("Orders", b"one tea"))

Each object runs its own event loop in a background thread from `start` to `close`. Calls are safe
from any thread, except from inside a listener that is a coroutine.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from twinlog import client
from twinlog.client import (
    SQL92,
    TAG,
    BadArgument,
    BadMessage,
    BadRoute,
    BatchPartlySent,
    BrokerRefused,
    CacheLimits,
    ClientClosed,
    ClientError,
    ClientOptions,
    Consumed,
    ConsumerOptions,
    Consuming,
    Credentials,
    Message,
    MessageQueue,
    NetError,
    NoNameServer,
    NoRoute,
    Outcome,
    Outgoing,
    PartlyConsumed,
    ProducerOptions,
    PullResult,
    PullStatus,
    RetryLater,
    SendFailed,
    Sending,
    SendKind,
    SendResult,
    SendStatus,
    StartFrom,
    TransactionResult,
    allocate_averagely,
    allocate_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_by_machine_room,
    allocate_nearby,
    reply_to,
    tls_context,
)
from twinlog.client.consuming.assigned_queues import MovesListener
from twinlog.client.consuming.listener import Listen, ListenToMany
from twinlog.client.group_consumer import GroupConsumer
from twinlog.client.loop_thread import LoopThread

__all__ = [
    "SQL92",
    "TAG",
    "Admin",
    "BadArgument",
    "BadMessage",
    "BadRoute",
    "BatchPartlySent",
    "BrokerRefused",
    "CacheLimits",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Consumed",
    "ConsumerOptions",
    "Consuming",
    "Credentials",
    "Message",
    "MessageQueue",
    "NetError",
    "NoNameServer",
    "NoRoute",
    "Outcome",
    "Outgoing",
    "PartlyConsumed",
    "PollConsumer",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "RetryLater",
    "SendFailed",
    "SendKind",
    "SendResult",
    "SendStatus",
    "Sending",
    "StartFrom",
    "TransactionResult",
    "allocate_averagely",
    "allocate_by_circle",
    "allocate_by_config",
    "allocate_by_consistent_hash",
    "allocate_by_machine_room",
    "allocate_nearby",
    "reply_to",
    "tls_context",
]
T = TypeVar("T")
P = ParamSpec("P")


class _Client(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def __aexit__(self, *exception: object) -> None: ...


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
        self._end(lambda made: made.__aexit__(*exception))

    def start(self) -> None:
        """Start the thread and connect; `with` does it too."""
        self._loop = LoopThread(type(self).__name__)

        async def start() -> C:
            made = self._client = self._make()  # now: functions of the user that `start` calls may use it
            await made.start()
            return made

        try:
            self._client = self._wait(start())
        except BaseException:
            self._client = None
            self._stop_loop()
            raise

    def close(self) -> None:
        """Close the client and end its thread; safe to call twice."""
        self._end(lambda made: made.close())

    def _end(self, close: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        if self._loop is None:
            return
        try:
            if self._client is not None and self._loop.is_running:
                self._wait(close(self._client))
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


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A coroutine method of a client as one that waits for the result."""

    @functools.wraps(method)
    def call(self: _InThread[Any], *args: P.args, **named: P.kwargs) -> T:
        return self._wait(method(self._running, *args, **named))

    return call


def _on_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method of a client, called in the thread of its event loop."""

    @functools.wraps(method)
    def call(self: _InThread[Any], *args: P.args, **named: P.kwargs) -> T:
        async def run() -> T:
            return method(self._running, *args, **named)

        return self._wait(run())

    return call


class Producer(_InThread[client.Producer]):
    """Like `client.Producer`; `check_transaction` and `local` are plain functions."""

    def __init__(
        self,
        name_servers: str,
        group: str = "DEFAULT_PRODUCER",
        *,
        options: ClientOptions | None = None,
        producer_options: ProducerOptions | None = None,
        check_transaction: Callable[[Message], Outcome] | None = None,
    ) -> None:
        self.group = group
        super().__init__(
            lambda: client.Producer(
                name_servers,
                group,
                options=options,
                producer_options=producer_options,
                check_transaction=check_transaction,
            )
        )

    send = _waits(client.Producer.send)
    send_batch = _waits(client.Producer.send_batch)
    send_oneway = _waits(client.Producer.send_oneway)
    request = _waits(client.Producer.request)
    queues = _waits(client.Producer.queues)
    recall = _waits(client.Producer.recall)

    def send_in_transaction(self, message: Outgoing, local: Callable[[Outgoing], Outcome]) -> TransactionResult:
        """Store `message` invisibly, run `local` in a thread, then make it visible (COMMIT) or drop it (ROLLBACK)."""

        async def in_thread(sent: Outgoing) -> Outcome:
            return await asyncio.to_thread(local, sent)

        return self._wait(self._running.send_in_transaction(message, in_thread))


class PullConsumer(_InThread[client.PullConsumer]):
    """Like `client.PullConsumer`."""

    def __init__(
        self, name_servers: str, group: str, *, options: ClientOptions | None = None, register: bool = True
    ) -> None:
        self.group = group
        super().__init__(lambda: client.PullConsumer(name_servers, group, options=options, register=register))

    queues = _waits(client.PullConsumer.queues)
    pull = _waits(client.PullConsumer.pull)
    poll = _waits(client.PullConsumer.poll)
    min_offset = _waits(client.PullConsumer.min_offset)
    max_offset = _waits(client.PullConsumer.max_offset)
    offset_at = _waits(client.PullConsumer.offset_at)
    earliest_time_ms = _waits(client.PullConsumer.earliest_time_ms)
    committed = _waits(client.PullConsumer.committed)
    commit = _waits(client.PullConsumer.commit)
    assign = _on_loop(client.PullConsumer.assign)
    seek = _on_loop(client.PullConsumer.seek)
    select = _on_loop(client.PullConsumer.select)
    position = _on_loop(client.PullConsumer.position)

    def messages(
        self, queue: MessageQueue, start: int, end: int, *, expression: str = "*", expression_type: str = TAG
    ) -> Iterator[Message]:
        """The matching messages of `queue` with offsets in [start, end); ClientError if some are gone."""
        found = self._running.messages(queue, start, end, expression=expression, expression_type=expression_type)
        while True:
            try:
                yield self._wait(_awaited(anext(found)))
            except StopAsyncIteration:
                return


G = TypeVar("G", bound=GroupConsumer)


class _GroupMember(_InThread[G]):
    """What push and poll consumers have in common."""

    def __init__(self, group: str, make: Callable[[], G]) -> None:
        self.group = group
        self._subscriptions: dict[str, tuple[str, str]] = {}

        def subscribed() -> G:
            made = make()
            for topic, (expression, kind) in self._subscriptions.items():
                made.subscribe(topic, expression, kind)
            return made

        super().__init__(subscribed)

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """As with the asynchronous consumer; before `start` or while it runs."""
        self._subscriptions[topic] = (expression, expression_type)
        if self._client is not None:
            self._subscribe(topic, expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing of `topic` any more; before `start` or while it runs."""
        self._subscriptions.pop(topic, None)
        if self._client is not None:
            self._unsubscribe(topic)

    _subscribe = _on_loop(GroupConsumer.subscribe)
    _unsubscribe = _on_loop(GroupConsumer.unsubscribe)
    assignment = _on_loop(GroupConsumer.assignment)
    pause = _on_loop(GroupConsumer.pause)
    rebalance_soon = _on_loop(GroupConsumer.rebalance_soon)


class PushConsumer(_GroupMember[client.PushConsumer]):
    """Like `client.PushConsumer`; the listener is called in threads."""

    def __init__(
        self,
        name_servers: str,
        group: str,
        listener: Listen | ListenToMany,
        *,
        options: ClientOptions | None = None,
        consumer_options: ConsumerOptions | None = None,
    ) -> None:
        super().__init__(
            group,
            lambda: client.PushConsumer(
                name_servers, group, listener, options=options, consumer_options=consumer_options
            ),
        )

    commit = _waits(client.PushConsumer.commit)
    resume = _on_loop(client.PushConsumer.resume)


class PollConsumer(_GroupMember[client.PollConsumer]):
    """Like `client.PollConsumer`; `on_take` and `on_release` are plain functions, called in a thread."""

    def __init__(
        self,
        name_servers: str,
        group: str,
        *,
        options: ClientOptions | None = None,
        consumer_options: ConsumerOptions | None = None,
        auto_commit: bool = True,
        on_take: MovesListener | None = None,
        on_release: MovesListener | None = None,
    ) -> None:
        super().__init__(
            group,
            lambda: client.PollConsumer(
                name_servers,
                group,
                options=options,
                consumer_options=consumer_options,
                auto_commit=auto_commit,
                on_take=_in_thread(on_take),
                on_release=_in_thread(on_release),
            ),
        )

    poll = _waits(client.PollConsumer.poll)
    commit = _waits(client.PollConsumer.commit)
    committed = _waits(client.PollConsumer.committed)
    position = _on_loop(client.PollConsumer.position)
    seek = _on_loop(client.PollConsumer.seek)
    seek_to_begin = _waits(client.PollConsumer.seek_to_begin)
    seek_to_end = _waits(client.PollConsumer.seek_to_end)
    offset_at = _waits(client.PollConsumer.offset_at)
    queues = _waits(client.PollConsumer.queues)
    resume = _on_loop(client.PollConsumer.resume)


def _in_thread(listener: MovesListener | None) -> MovesListener | None:
    """The listener, called beside the event loop, so that it may call the consumer and wait."""
    if listener is None:
        return None

    async def call(queues: list[MessageQueue]) -> None:
        result = await asyncio.to_thread(listener, queues)
        if inspect.isawaitable(result):
            await result

    return call


class Admin(_InThread[client.Admin]):
    """Every method of `client.Admin`, waiting for its result."""

    def __init__(self, name_servers: str, *, options: ClientOptions | None = None, timeout_ms: int = 5_000) -> None:
        super().__init__(lambda: client.Admin(name_servers, options=options, timeout_ms=timeout_ms))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"Admin has no method {name!r}; see twinlog.client.Admin")


for _name, _method in inspect.getmembers(client.Admin, inspect.iscoroutinefunction):
    if not _name.startswith("_") and not hasattr(Admin, _name):
        setattr(Admin, _name, _waits(_method))
