"""Answers that need a whole table, or much of the log: computed beside the loop, by a few threads of their own.

Work of one kind is done one piece after the other, so that many requests cannot take every thread. Equal questions that
wait share one answer: a thousand of them cost two answers, the one being computed and the next. The threads are not
asyncio's default ones, which resolve names and write files.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
THREADS = 2


def joined(chunks: Iterable[bytes]) -> bytes:
    """All chunks in one piece; to be called in a thread.

    The interpreter lock is released after each: otherwise the loop waits 5 ms for it at every write to a socket.
    """
    parts = []
    for chunk in chunks:
        parts.append(chunk)
        time.sleep(0)
    return b"".join(parts)


class TableWork:
    """Runs expensive work for requests."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tables")  # they start on first use
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[tuple[str, Hashable], asyncio.Future[Any]] = {}

    async def beside_loop(self, kind: str, question: Hashable, begin: Callable[[], Callable[[], T]]) -> T:
        """The result of the function that `begin` returns.

        `begin` runs in the loop and takes a snapshot; the function runs in a thread. `kind` is one of a few words.
        """

        async def work() -> T:
            return await asyncio.get_running_loop().run_in_executor(self._threads, begin())

        return await self._shared(kind, question, work)

    async def in_turn(self, kind: str, question: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, run in the loop; other work has a turn between two pieces of this kind."""

        async def work() -> T:
            answer = compute()
            await asyncio.sleep(0)
            return answer

        return await self._shared(kind, question, work)

    async def in_order(self, kind: str, work: Callable[..., T], *arguments: Any) -> T:
        """The result of `work`, run in a thread after earlier work of this kind."""
        async with self._lock(kind):
            call = functools.partial(work, *arguments)
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _shared(self, kind: str, question: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        key = (kind, question)
        answer = self._waiting.get(key)
        if answer is None:
            answer = self._waiting[key] = asyncio.ensure_future(self._one(key, work))
        return await asyncio.shield(answer)

    async def _one(self, key: tuple[str, Hashable], work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self._lock(key[0]):
                del self._waiting[key]  # a question from now on needs a newer answer
                return await work()
        finally:
            if self._waiting.get(key) is asyncio.current_task():
                del self._waiting[key]

    def _lock(self, kind: str) -> asyncio.Lock:
        return self._locks.setdefault(kind, asyncio.Lock())
