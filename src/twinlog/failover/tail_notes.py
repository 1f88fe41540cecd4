"""Writes what this broker set aside into the history of its group: `tails.py` decides what, this asks etcd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twinlog.failover.records import History, Tail, history_name
from twinlog.failover.tails import history_of, nothing_lost, with_tail
from twinlog.failover.transactions import note_tail
from twinlog.telemetry.log import get_logger

if TYPE_CHECKING:
    from twinlog.failover.group_keys import GroupKeys
    from twinlog.failover.host import Host

log = get_logger(__name__)
Followed = tuple[str, int]
"""the master that is followed, and its epoch"""


class TailNotes:
    """Called after every look. It asks etcd only when there is something to note, and once for each new master."""

    def __init__(self, host: Host, group: GroupKeys, wall_ms: Callable[[], int]) -> None:
        self._host = host
        self._group = group
        self._wall_ms = wall_ms
        self._noted_in: Followed | None = None  # whom this broker followed when the history had all of it

    async def note(self, following: Followed | None) -> None:
        """Note every tail that waits; or, without one, that a lost master came back with nothing more than the new one.

        A broker whose machine was restarted may lack the end of its log: that does not mean that nothing was lost.
        """
        host, tails = self._host, self._host.tails()
        for tail, epoch in tails:
            if not await self._note(tail, epoch, await self._group.history()):
                return  # another broker was first; the next look tries again
            host.forget_tail(tail)
        if tails or following is None or following == self._noted_in or not host.is_following:
            return
        history = await self._group.history()
        records = [record for record, _ in history.values()]
        nothing = nothing_lost(host.member, host.address, following[1], records, self._wall_ms())
        if nothing is None or not host.kept_its_log or await self._note(nothing, following[1], history):
            self._noted_in = following

    async def _note(self, tail: Tail, epoch: int, history: Mapping[str, tuple[History, int]]) -> bool:
        """Whether it is noted, or there is no record for it any more; False when another broker was first."""
        found = history_of(tail, epoch, [record for record, _ in history.values()])
        if found is None:
            return True
        name, noted = history_name(found.epoch), with_tail(found, tail)
        if noted != found and await self._group.transact(note_tail(name, history[name][1], noted)) is None:
            return False
        log.info("failover: the history has what this broker set aside", epoch=found.epoch, messages=tail.messages)
        return True
