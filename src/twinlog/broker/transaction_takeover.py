"""What a broker learns of transactions when it becomes master, before it ends or asks about any.

A reign is the time in which a broker is master without a break. What one reign remembers does not hold in the next,
whose log may be another. Each begins with the op records and, behind the oldest half message that they leave open, the
commits in the log: the last op records of a master that died were never written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from twinlog.broker.half import shows_commit
from twinlog.store.committed import Commit, commits_in

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.store.message_store import MessageStore
    from twinlog.wire.message import Message


class TakeOver:
    """Learns once per reign, in the slices of `learn`; whoever needs to know it all now takes the rest at once."""

    def __init__(self, ctx: BrokerContext, learn: Callable[[], Iterator[None]]) -> None:
        self._ctx, self._learn = ctx, learn
        self._reign = -1
        self._slices: Iterator[None] = iter(())

    @property
    def begun(self) -> bool:
        """Whether anything was learnt of this reign."""
        return self._reign == self._ctx.reign

    def take_all(self) -> None:
        while self._take_slice():
            pass

    async def take_slowly(self) -> None:
        """All of it, with turns for other work."""
        more = True
        while more and self._ctx.is_master:
            more = self._take_slice()
            await asyncio.sleep(0)

    def _take_slice(self) -> bool:
        """Whether there is more to learn."""
        if not self.begun:
            self._reign, self._slices = self._ctx.reign, self._learn()
        try:
            return next(self._slices, self) is None
        except Exception:
            self._reign = -1  # all of it again: an outcome that is not known would be decided a second time
            raise


def committed_halves(store: MessageStore, begin: int) -> Iterator[list[Message]]:
    """The half messages whose commit stands between `begin` and the end of the log, slice by slice."""
    for commits in commits_in(store.commit_log, begin, store.log_end):
        yield [message for commit in commits if (message := _half_of(store, commit)) is not None]


def _half_of(store: MessageStore, commit: Commit) -> Message | None:
    message = store.message_at(commit.prepared) if commit.prepared < commit.physical_offset else None
    record = store.message_at(commit.physical_offset, commit.size) if message is not None else None
    return message if message is not None and record is not None and shows_commit(record, message) else None
