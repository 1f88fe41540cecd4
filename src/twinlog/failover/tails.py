"""What a broker set aside when it came back after a failover, noted in the history of its group. No I/O.

When a master is lost, nobody knows where its log ended: the record of the failover has the range between the log of the
new master and the end that the old one published last. When the old one comes back, its tail is set aside in a file
(`broker/replication/tail_cut.py`): from then on the record has the exact range, the number of messages and the file.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from twinlog.failover.records import History, Tail


def history_of(tail: Tail, epoch: int, records: Iterable[History]) -> History | None:
    """The record of the failover that cost this broker its tail; `epoch` is that of the master it then followed.

    That is the last one in which the broker was replaced as master. A replica whose log was longer than the new
    master's was never replaced: then it is the record of that master.
    """
    known = {one.epoch: one for one in records if one.epoch <= epoch}
    replaced = [number for number, one in known.items() if one.source == tail.member]
    return known.get(max(replaced, default=epoch))


def nothing_lost(member: str, address: str, epoch: int, records: Iterable[History], at_ms: int) -> Tail | None:
    """An empty tail, for a lost master that follows again with all of its log; None if that is in the history."""
    known = [one for one in records if one.epoch <= epoch and one.source == member]
    last = max(known, key=lambda one: one.epoch, default=None)
    if last is None or not last.may_lose or last.lost is not None or is_exact(last):
        return None
    at = last.start
    return Tail(member=member, address=address, begin=at, end=at, messages=0, file="", at_ms=at_ms)


def with_tail(record: History, tail: Tail) -> History:
    """The record with the tail. If acknowledged messages may be in it, its range is what was lost."""
    tails = (*(one for one in record.tails if (one.member, one.file) != (tail.member, tail.file)), tail)
    is_lost = record.may_lose and tail.member == record.source and tail.messages > 0
    lost = (tail.begin, tail.end) if is_lost else record.lost
    return msgspec.structs.replace(record, tails=tails, lost=lost)


def is_exact(record: History) -> bool:
    """Whether the old master has come back, so that its range is not an estimate any more."""
    return any(one.member == record.source for one in record.tails)
