"""What a test may do to a broker: make it slow, let it refuse requests, fill its disk.

A fault begins with its call and ends with `end()`, or with its `with` block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from twinlog.wire.codes import RequestCode

if TYPE_CHECKING:
    from twinlog.net.connection import Answer, Handler, Request
    from twinlog.net.server import Server

Requests = str | Iterable[int]
REQUEST_KINDS: dict[str, frozenset[int]] = {
    "send": frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
        }
    ),
    "pull": frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}),
    "heartbeat": frozenset({RequestCode.HEART_BEAT}),
    "commit": frozenset({RequestCode.UPDATE_CONSUMER_OFFSET}),
}


class Fault:
    """Something that is wrong with a broker until `end`."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end

    def end(self) -> None:
        """The broker is well again; safe to call twice."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


def codes_of(requests: Requests) -> frozenset[int] | None:
    """The request codes that a fault is about; None for all of them."""
    if requests == "all":
        return None
    if isinstance(requests, str):
        if requests not in REQUEST_KINDS:
            raise ValueError(f"requests={requests!r} is unknown: use all, {', '.join(REQUEST_KINDS)}, or request codes")
        return REQUEST_KINDS[requests]
    return frozenset(requests)


class FaultyHandlers(Mapping[int, "Handler"]):
    """The handlers of a server, some of them changed."""

    def __init__(
        self, inner: Mapping[int, Handler], codes: frozenset[int] | None, change: Callable[[Handler], Handler]
    ) -> None:
        self._inner, self._codes, self._change = inner, codes, change

    def __getitem__(self, code: int) -> Handler:
        handler = self._inner[code]
        return self._change(handler) if self._codes is None or code in self._codes else handler

    def __iter__(self) -> Iterator[int]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


class Interference:
    """Changes how one server answers, in the thread of its event loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._handlers, self._fast = server._options.handlers, server._options.fast

    @property
    def after_batch(self) -> Callable[[], object] | None:
        return self._server._options.after_batch

    def apply(self, faults: Sequence[RequestFault]) -> None:
        """Let the server have these faults, and no others."""
        handlers = self._handlers
        for codes, change in faults:
            handlers = FaultyHandlers(handlers, codes, change(self))
        # A connection has a copy of the options; the server's own are for those that come.
        for options in (self._server._options, *(each._options for each in self._server.connections)):
            options.handlers = handlers
            options.fast = None if faults else self._fast  # it would answer sends itself


RequestFault = tuple[frozenset[int] | None, "Callable[[Interference], Callable[[Handler], Handler]]"]


def slowed(seconds: float, after_batch: Callable[[], object] | None) -> Callable[[Handler], Handler]:
    """A change that has requests wait before they are handled."""

    def change(handler: Handler) -> Handler:
        async def later(request: Request) -> Answer:
            await asyncio.sleep(seconds)
            result: Any = handler(request)
            answer: Answer = await result if inspect.isawaitable(result) else result
            if after_batch is not None:
                after_batch()  # what was appended is dispatched now, and not with the chunk
            return answer

        return later

    return change


def refusing(code: int, remark: str, count: int | None) -> Callable[[Handler], Handler]:
    """A change that answers `code` to the next `count` requests, to all of them without a count."""
    left = [count]

    def change(handler: Handler) -> Handler:
        def answer(request: Request) -> Any:
            if left[0] is None:
                return request.reply(code, remark, {})
            if left[0] <= 0:
                return handler(request)
            left[0] -= 1
            return request.reply(code, remark, {})

        return answer

    return change
