"""What a broker learns of transactions when it becomes master, before it ends or asks about any.

A reign is the time in which a broker is master without a break. What one reign remembers does not hold in the next,
whose log may be another. Each begins with the op records and, behind the oldest half message that they leave open, the
commits in the log: the last op records of a master that died were never written.

That may be many GiB. So it goes in steps, with the searching of bytes in a thread, and sends get the loop in between.
Whoever ends or checks a transaction waits until it is done.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from twinlog.broker.deferred.transaction_rules import shows_commit
from twinlog.store.scan.committed import Commit, slice_at
from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_message

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.store.message_store import MessageStore
    from twinlog.wire.message import Message

# The head of a record: size, magic, CRC, queue id, flag, queue offset, physical offset.
_HEAD = struct.Struct(">i8xi4xqq")
_PAUSE_S_MAX = 0.05

Job = Callable[[], Any] | None  # to be called in a thread; None is a turn for others
Steps = Generator[Job, Any, None]  # yields jobs, and is sent what each returned
IsKnown = Callable[[int, int], bool]  # by queue id and queue offset


class TakeOver:
    """Learns once per reign, in the steps of `learn`, whoever waits for it."""

    def __init__(self, ctx: BrokerContext, learn: Callable[[], Steps]) -> None:
        self._ctx, self._learn = ctx, learn
        self._turn = asyncio.Lock()  # one of those who wait takes the steps; if it is cancelled, the next one goes on
        self._reign = self._known_reign = -1
        self._steps: Steps = _nothing()
        self._job: Job = None

    @property
    def begun(self) -> bool:
        """Whether anything was learnt of this reign."""
        return self._reign == self._ctx.reign

    @property
    def done(self) -> bool:
        """Whether everything was learnt of this reign."""
        return self._known_reign == self._ctx.reign

    async def finish(self) -> None:
        """Returns when everything is learnt, or this broker is not master any more."""
        loop = asyncio.get_running_loop()
        while not self.done and self._ctx.is_master:
            async with self._turn:
                if not self.done and self._ctx.is_master:
                    began = loop.time()
                    await self._step()
                    # Others get at least as much of the time, also of the interpreter lock.
                    await asyncio.sleep(min(loop.time() - began, _PAUSE_S_MAX))

    async def _step(self) -> None:
        if not self.begun:
            self._reign, self._steps, self._job = self._ctx.reign, self._learn(), None
        try:
            result = await asyncio.to_thread(self._job) if self._job is not None else None
            self._job = None
            if self.begun:  # else the log is another one now
                self._job = self._steps.send(result)
        except StopIteration:
            self._known_reign = self._reign
        except Exception:
            self._reign = -1  # all of it again: an outcome that is not known would be decided a second time
            raise


def _nothing() -> Steps:
    yield from ()


def find_committed(store: MessageStore, begin: int, is_known: IsKnown, found: Callable[[Message], None]) -> Steps:
    """Report the half messages whose commit stands between `begin` and today's end of the log.

    `is_known` is asked in a thread: those are passed over before anything is decoded.
    """
    log, at, end = store.commit_log, begin, store.log_end
    while (part := slice_at(log, at, end)) is not None:
        commits, at = yield part.commits
        del part
        if commits:
            messages = yield partial(
                _halves_of,
                [
                    (one, log.chunk(one.prepared, log.segment_size), log.slice(one.physical_offset, one.size))
                    for one in commits
                    if 0 <= one.prepared < one.physical_offset
                ],
                is_known,
            )
            for message in messages:
                found(message)


def _halves_of(places: list[tuple[Commit, memoryview | None, memoryview | None]], is_known: IsKnown) -> list[Message]:
    found = (_half_of(*place, is_known) for place in places)
    return [message for message in found if message is not None]


def _half_of(commit: Commit, half: memoryview | None, record: memoryview | None, is_known: IsKnown) -> Message | None:
    """The half message that `record` shows; None when it is known, or does not stand there."""
    if half is None or record is None or len(half) < _HEAD.size:
        return None
    size, queue_id, queue_offset, physical_offset = _HEAD.unpack_from(half)
    if physical_offset != commit.prepared or is_known(queue_id, queue_offset):
        return None
    try:
        message, shown = decode_message(half[: max(size, 0)]), decode_message(record)
    except WireError:
        return None
    return message if shows_commit(shown, message) else None
