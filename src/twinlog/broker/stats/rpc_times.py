"""How long requests take until they are answered, by request code and response code: Java's histogram of them.

Sends count where they are answered, a whole chunk with one call; pulls count in their handler, as those that wait do.
All other requests go through `timed`, which is used while metrics are served.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from twinlog.net.errors import RequestRefused
from twinlog.telemetry.histograms import RPC_MS
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.command import Command

if TYPE_CHECKING:
    from twinlog.net.connection import Answer, Handler, Request

_BOUNDS_S = tuple(bound / 1000 for bound in RPC_MS)
SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})

Key = tuple[int, int, bool]
"""request code, response code, whether it was held"""


class RpcRow:
    """The histogram of one key."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(RPC_MS) + 1)
        self.sum_s = 0.0

    def took(self, seconds: float, count: int = 1) -> None:
        """Count `count` requests, each with this duration."""
        self.counts[bisect_left(_BOUNDS_S, seconds)] += count
        self.sum_s += seconds * count


class RpcTimes:
    """All rows of one broker. Codes come from our own tables, so there are few."""

    def __init__(self) -> None:
        self.rows: dict[Key, RpcRow] = {}

    def row(self, request_code: int, response_code: int = 0, held: bool = False) -> RpcRow:
        key = (request_code, response_code, held)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = RpcRow()
        return row


def timed(handlers: Mapping[int, Handler], times: RpcTimes) -> dict[int, Handler]:
    """The same handlers; the time of each answer is counted. Of sends and pulls only what is refused."""

    def count(request: Request, started: float, response_code: int) -> None:
        times.row(request.code, response_code).took(perf_counter() - started)

    def failed(request: Request, started: float, error: Exception) -> None:
        code = error.code if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
        count(request, started, code)

    async def later(request: Request, started: float, pending: Awaitable[Answer]) -> Answer:
        try:
            answer = await pending
        except Exception as error:
            failed(request, started, error)
            raise
        return noted(request, started, answer)

    def noted(request: Request, started: float, answer: Answer) -> Answer:
        if isinstance(answer, Command) and request.code not in SENDS and request.code not in PULLS:
            count(request, started, answer.code)
        return answer

    def around(handler: Handler) -> Handler:
        def handle(request: Request) -> Answer | Awaitable[Answer]:
            started = perf_counter()
            try:
                result = handler(request)
            except Exception as error:
                failed(request, started, error)
                raise
            return later(request, started, result) if isinstance(result, Awaitable) else noted(request, started, result)

        return handle

    return {code: around(handler) for code, handler in handlers.items()}


def request_name(code: int) -> str:
    """`pull_message` for 11, as Java's label has it."""
    try:
        return RequestCode(code).name.lower()
    except ValueError:
        return str(code)


def response_name(code: int) -> str:
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
