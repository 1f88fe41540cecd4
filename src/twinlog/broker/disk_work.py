"""Reads that wait for the disk, beside the loop: a few threads of their own, shared fairly among peers.

A peer may ask for much that is on disk only. So at most `PER_PEER_MAX` of its reads run at once, and the others wait. A
free thread goes to the waiting peers in turn. Connections limit how many reads wait: they stop reading requests of a
peer that waits for many answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
THREADS = 4  # a disk has more than one read in work anyway
PER_PEER_MAX = 2


class Peer(Protocol):
    """Who asks: a connection."""

    closed: bool


class DiskWork:
    """Runs reads for requests."""

    def __init__(self, threads: int = THREADS, per_peer_max: int = PER_PEER_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="disk")  # they start on first use
        self._free = threads
        self._per_peer_max = per_peer_max
        self._running: Counter[Peer] = Counter()
        self._waiting: dict[Peer, deque[asyncio.Future[None]]] = {}  # the peer whose turn is next comes first

    async def run(self, peer: Peer, work: Callable[[], T]) -> T:
        """The result of `work`, run in a thread when it is this peer's turn; cancelled if the peer is gone by then."""
        if not self._free or self._running[peer] >= self._per_peer_max or peer in self._waiting:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(peer, deque()).append(turn)
            try:
                await turn  # whoever set its result has counted this read as running
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._end(peer)
                raise
        else:
            self._start(peer)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            self._end(peer)
            raise
        # The thread is busy until it is done, even if nobody waits for the answer any more.
        done.add_done_callback(lambda _: self._end(peer))
        return await asyncio.shield(done)

    @property
    def waiting(self) -> int:
        """How many reads wait for a thread."""
        return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Wait for the reads that have begun, and begin no others: the store closes after this."""
        self._free = 0
        for turns in self._waiting.values():
            for turn in turns:
                turn.cancel()
        self._waiting.clear()
        self._threads.shutdown(cancel_futures=True)

    def _start(self, peer: Peer) -> None:
        self._free -= 1
        self._running[peer] += 1

    def _end(self, peer: Peer) -> None:
        self._free += 1
        self._running[peer] -= 1
        if not self._running[peer]:
            del self._running[peer]
        self._next_turns()

    def _next_turns(self) -> None:
        for peer in list(self._waiting):
            if not self._free:
                return
            turns = self._waiting[peer]
            while turns and (turns[0].done() or peer.closed):
                turns.popleft().cancel()
            if turns and self._running[peer] < self._per_peer_max:
                self._start(peer)
                turns.popleft().set_result(None)
            del self._waiting[peer]
            if turns:
                self._waiting[peer] = turns  # behind the others
