"""Damaged records are fetched from the twin while the broker runs: a replica asks its master, a master its replicas.

A read has met the damage, and left the record out (`store/readable_store.py`). `replication/repair_queue.py` decides
when the next place is tried, `replication/twin_record.py` whether the twin's bytes are the record of that place, and
`store/recovery/record_mend.py` writes them. The twin is asked for a record by its place in the log, which Java brokers
answer as well. Files are read and written in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from twinlog.base.clock import monotonic_ms
from twinlog.net.connecting import target_of
from twinlog.net.errors import NetError
from twinlog.replication.errors import ReplicationError
from twinlog.replication.master.peer_rules import peer_refusal
from twinlog.replication.repair_queue import RepairQueue
from twinlog.replication.secret import prove
from twinlog.replication.twin_record import (
    AskTwin,
    FindUnit,
    Mend,
    NotMended,
    OwnLog,
    ReadOwn,
    Step,
    examine,
    pack_place,
)
from twinlog.store.errors import StoreError
from twinlog.store.file_ops import FileOps
from twinlog.store.recovery.record_mend import SegmentFile
from twinlog.telemetry.log import get_logger
from twinlog.wire.codes import RequestCode, ResponseCode
from twinlog.wire.headers import FOR_REPAIR

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.replication.replication_service import ReplicationService
    from twinlog.net.pool import ConnectionPool

log = get_logger(__name__)
T = TypeVar("T")
_TIMEOUT_MS = 3000
_TWINS_MAX = 3  # asked about one place


@dataclass(frozen=True, slots=True)
class Twin:
    """A broker with the same log."""

    address: str
    is_linked: bool  # it holds all of this broker's log, or all of this log is its


class RepairService:
    """Mends one record at a time until cancelled."""

    def __init__(self, ctx: BrokerContext, replication: ReplicationService, pool: ConnectionPool) -> None:
        self._ctx = ctx
        self._replication = replication
        self._pool = pool
        self._queue = RepairQueue()
        self._noted = asyncio.Event()
        self._over = asyncio.Event()  # an attempt is over; another event takes its place then
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reason = ""  # of the last failure, as it was logged
        self.repaired = 0
        self.failures = 0
        ctx.store.on_damaged_record.append(self._note)
        ctx.wait_for_repair = self._wait

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        for place in list(self._ctx.store.damaged):
            self._add(place)
        while True:
            self._noted.clear()
            place = self._queue.next_place(monotonic_ms())
            if place is not None:
                try:
                    await self._attempt(place)
                finally:
                    self._end(place)
                continue
            wait_ms = self._queue.wait_ms(monotonic_ms())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._noted.wait()

    async def _wait(self, place: int, seconds_max: float) -> None:
        """Return when the first attempt at `place` is over, or the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while place in self._ctx.store.under_repair:
                    await self._over.wait()

    def _note(self, physical_offset: int) -> None:
        """A read has met damage, in the loop or in a thread."""
        if self._loop is None:
            return
        if self._is_promising:
            self._ctx.store.under_repair.add(physical_offset)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._add, physical_offset)

    def _add(self, place: int) -> None:
        if self._queue.add(place, monotonic_ms()):
            self._noted.set()
        elif place not in self._queue:
            self._end(place)  # too many are damaged: nobody waits for this one

    def _end(self, place: int) -> None:
        """Those who wait for this place read again."""
        self._ctx.store.under_repair.discard(place)
        over, self._over = self._over, asyncio.Event()
        over.set()

    @property
    def _is_promising(self) -> bool:
        """Whether a twin is there that answers, as far as is known: then readers wait for it."""
        if not self._ctx.conf.replication.repairs_from_twin or self._queue.is_waiting_for_twin:
            return False
        replication = self._replication
        if not self._ctx.is_master:
            return replication.replica.is_compared
        return any(row.usable and not row.observer for row in replication.master.acks.rows())

    # -- one place -----------------------------------------------------------------------------

    async def _attempt(self, place: int) -> None:
        reasons: dict[str, str] = {}
        has_answer = False
        twins: list[Twin] = []
        if self._ctx.conf.replication.repairs_from_twin:
            twins = await self._twins()
        for twin in twins[:_TWINS_MAX]:
            try:
                return await self._mend_from(twin, place)
            except (NotMended, StoreError) as error:
                reasons[twin.address], has_answer = str(error), True
            except (NetError, ReplicationError) as error:
                reasons[twin.address] = str(error)
            except OSError as error:
                reasons[twin.address], has_answer = f"{type(error).__name__}: {error}", True
        now_ms = monotonic_ms()
        pause_ms = self._queue.failed(place, now_ms) if has_answer else self._queue.twin_failed(now_ms)
        self.failures += 1
        self._report(place, reasons, pause_ms)

    def _report(self, place: int, reasons: dict[str, str], pause_ms: int) -> None:
        reason = "; ".join(f"{address}: {text}" for address, text in reasons.items())
        if not reason:
            reason = "no twin is known" if self._ctx.conf.replication.repairs_from_twin else "haRepairFromTwin=false"
        if reason != self._reason:
            log.warning(
                "a damaged message is not repaired yet",
                physical_offset=place,
                reason=reason,
                again_in_s=pause_ms // 1000,
            )
        self._reason = reason

    async def _mend_from(self, twin: Twin, place: int) -> None:
        """Mend the record at `place` and damaged ones right behind it; NotMended, or another error, if that fails."""
        await self._check_twin(twin.address)
        store = self._ctx.store
        end = store.log_end if self._ctx.is_master else store.whole_end
        steps = examine(place, OwnLog(store.log_start, end, store.commit_log.segment_size), is_linked=twin.is_linked)
        answer: bytes | None = None
        try:
            step = next(steps)
            while True:
                answer = await self._answer(twin, step)
                step = steps.send(answer)
        except StopIteration as found:
            mends: list[Mend] = found.value
        for mend in mends:
            await self._write(mend)
            store.note_repair(mend.physical_offset)
            self._queue.done(mend.physical_offset)
            self._end(mend.physical_offset)
            self.repaired += 1
            self._reason = ""
            log.warning(
                "a damaged message is repaired from its twin",
                physical_offset=mend.physical_offset,
                bytes=len(mend.record),
                twin=twin.address,
            )
        self._queue.done(place)

    async def _check_twin(self, address: str) -> None:
        """With haSharedSecret, a twin proves that it knows it, unless haReplicasFrom trusts its address."""
        settings = self._ctx.conf.replication
        is_trusted = peer_refusal(settings, target_of(address).host, is_proven=False) is None
        if settings.shared_secret is not None and not is_trusted:
            await prove(await self._pool.get(address), settings.shared_secret)

    async def _answer(self, twin: Twin, step: Step) -> bytes | None:
        match step:
            case AskTwin(offset):
                return await self._ask(twin.address, offset)
            case ReadOwn(offset, size):
                return await self._read(offset, size)
            case FindUnit(topic, queue_id, queue_offset):
                unit = await _in_thread(lambda: self._ctx.store.unit(topic, queue_id, queue_offset))
                return None if unit is None else pack_place(unit[0], unit[1])

    async def _ask(self, address: str, physical_offset: int) -> bytes | None:
        fields = {"offset": str(physical_offset), FOR_REPAIR: "true"}
        answer = await self._pool.request(address, RequestCode.VIEW_MESSAGE_BY_ID, fields, timeout_ms=_TIMEOUT_MS)
        return answer.body if answer.code == ResponseCode.SUCCESS else None

    async def _read(self, physical_offset: int, size: int) -> bytes | None:
        file = SegmentFile.at(self._ctx.store.commit_log, physical_offset)
        if file is None:
            return None
        with file:
            return await _in_thread(lambda: file.read(physical_offset, size))

    async def _write(self, mend: Mend) -> None:
        store = self._ctx.store
        ops = FileOps(store.settings.modes)
        file = SegmentFile.at(store.commit_log, mend.physical_offset, ops, writable=True)
        if file is None:
            raise NotMended(f"the file of {mend.physical_offset} is gone, or may not be written")
        with file:
            await _in_thread(lambda: file.mend(store.root, mend.physical_offset, mend.record, mend.damaged))

    # -- twins ---------------------------------------------------------------------------------

    async def _twins(self) -> list[Twin]:
        """Whom to ask, the surest first."""
        if not self._ctx.is_master:
            replica = self._replication.replica
            address = replica.master_address
            return [] if address is None else [Twin(address, replica.is_compared)]
        own = self._ctx.settings.address
        known: dict[str, int] = {}
        for members in await self._replication.group.members():
            known |= {text: number for number, text in members.items() if number > 0 and text != own}
        twins = [Twin(address, self._is_linked(address, number)) for address, number in known.items()]
        return sorted(twins, key=lambda twin: (not twin.is_linked, twin.address))

    def _is_linked(self, address: str, broker_id: int) -> bool:
        """Whether this replica has reported all of the log on a connection that is open now."""
        return any(view_end >= self._ctx.store.log_end for view_end in self._reported(address, broker_id))

    def _reported(self, address: str, broker_id: int) -> Iterator[int]:
        for view in self._replication.master.views():
            if view.observer:
                continue
            if view.broker_id == broker_id:
                yield view.acked
            elif view.broker_id is None and view.identity is None:  # a Java replica sends no id
                with contextlib.suppress(NetError):
                    if target_of(view.peer).host == target_of(address).host:
                        yield view.acked


async def _in_thread(work: Callable[[], T]) -> T:
    """The result of `work`; if this task is cancelled, its files stay open until the thread is done."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
