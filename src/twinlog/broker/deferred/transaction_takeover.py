"""What a broker learns about transactions when it becomes master, before it ends or checks any.

A term is the time in which a broker is master without a break. What was learnt in one term does not hold in the next,
whose log may be different. At the beginning of a term the op records are read. Then the log is searched for commits,
since a master that died did not write its last op records. The search starts at the oldest half message that no op
record names.

That may be many GiB. So it goes in steps: bytes are searched in a thread, and sends get the loop between two steps.
Ending and checking a transaction waits until all is learnt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from twinlog.broker.deferred.transaction_rules import is_commit_of
from twinlog.store.scan.committed import Commit, slice_at
from twinlog.wire.errors import WireError
from twinlog.wire.message import decode_message
from twinlog.wire.record_layout import BEFORE_HOSTS

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.store.message_store import MessageStore
    from twinlog.wire.message import Message

_PAUSE_S_MAX = 0.05

Job = Callable[[], Any] | None  # to be called in a thread; None when only other tasks shall run
Steps = Generator[Job, Any, None]  # yields jobs, and is sent what each returned
IsKnown = Callable[[int, int], bool]  # by queue id and queue offset


class TakeOver:
    """Learns once per term, in the steps of `learn`; any number of tasks may wait for it."""

    def __init__(self, ctx: BrokerContext, learn: Callable[[], Steps]) -> None:
        self._ctx, self._learn = ctx, learn
        # One waiting task at a time takes the steps. If it is cancelled, the next one continues.
        self._turn = asyncio.Lock()
        self._begun_term = self._done_term = -1
        self._steps: Steps = _nothing()
        self._job: Job = None

    @property
    def begun(self) -> bool:
        """Whether learning has begun in this term."""
        return self._begun_term == self._ctx.term

    @property
    def done(self) -> bool:
        """Whether everything is learnt in this term."""
        return self._done_term == self._ctx.term

    async def finish(self) -> None:
        """Return when everything is learnt, or this broker is not master any more."""
        loop = asyncio.get_running_loop()
        while not self.done and self._ctx.is_master:
            async with self._turn:
                if not self.done and self._ctx.is_master:
                    began = loop.time()
                    await self._step()
                    # Other tasks get at least as much time, also of the interpreter lock.
                    await asyncio.sleep(min(loop.time() - began, _PAUSE_S_MAX))

    async def _step(self) -> None:
        if not self.begun:
            self._begun_term, self._steps, self._job = self._ctx.term, self._learn(), None
        try:
            result = await asyncio.to_thread(self._job) if self._job is not None else None
            self._job = None
            if self.begun:  # else a new term has begun
                self._job = self._steps.send(result)
        except StopIteration:
            self._done_term = self._begun_term
        except Exception:
            self._begun_term = -1  # all of it again: an outcome that is not known would be decided a second time
            raise


def _nothing() -> Steps:
    yield from ()


def find_committed(store: MessageStore, begin: int, is_known: IsKnown, found: Callable[[Message], None]) -> Steps:
    """Call `found` with each half message whose commit stands between `begin` and the present end of the log.

    `is_known` is called in a thread: known messages are skipped before anything is decoded.
    """
    log, at, end = store.commit_log, begin, store.log_end
    while (part := slice_at(log, at, end)) is not None:
        commits, at = yield part.commits
        del part
        if commits:
            messages = yield partial(
                _prepared_messages,
                [
                    (one, log.chunk(one.prepared, log.segment_size), log.slice(one.physical_offset, one.size))
                    for one in commits
                    if 0 <= one.prepared < one.physical_offset
                ],
                is_known,
            )
            for message in messages:
                found(message)


def _prepared_messages(
    places: list[tuple[Commit, memoryview | None, memoryview | None]], is_known: IsKnown
) -> list[Message]:
    found = (_prepared_message(*place, is_known) for place in places)
    return [message for message in found if message is not None]


def _prepared_message(
    commit: Commit, prepared: memoryview | None, record: memoryview | None, is_known: IsKnown
) -> Message | None:
    """The message that `record` commits; None when it is known, or is not at the place that `commit` names."""
    if prepared is None or record is None or len(prepared) < BEFORE_HOSTS.size:
        return None
    size, _, _, queue_id, _, queue_offset, physical_offset, _, _ = BEFORE_HOSTS.unpack_from(prepared)
    if physical_offset != commit.prepared or is_known(queue_id, queue_offset):
        return None
    try:
        message, committed = decode_message(prepared[: max(size, 0)]), decode_message(record)
    except WireError:
        return None
    return message if is_commit_of(committed, message) else None
