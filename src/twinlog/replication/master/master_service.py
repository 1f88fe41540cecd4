"""The HA port of a master: accepts replicas, sends them the log as it grows, believes their reports.

Everything here happens in callbacks of the event loop, so that a byte appended by a send leaves for the
replicas in the same turn: no task is woken, and nothing is polled. Data goes from the segment files to
the socket by sendfile.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twinlog.base.addresses import address_text
from twinlog.net.errors import CannotListen
from twinlog.replication.errors import PeerSilent, ReplicationError
from twinlog.replication.hello import HelloHeader
from twinlog.replication.master.link import LinkState, LogBounds, MasterLink, Transfer
from twinlog.replication.master.passes import Passes, PassHolder
from twinlog.replication.master.replica_acks import LinkAck, ReplicaAcks
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.log.commit_log import CommitLog
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_SEND_BYTES_MAX = 1024 * 1024  # per turn of the loop and replica, so that sends are not kept waiting
_COPIED_BYTES_MAX = 16 * 1024  # up to here one call with a copy is cheaper than a call for the head and a sendfile
_BATCHES_AT_ONCE = 4  # a Twinlog replica that is behind takes them a tenth faster, a Java replica more slowly
_TICK_SECONDS = 0.5
_ACCEPT_AGAIN_S = 0.1


class Clock(Protocol):
    def __call__(self) -> int: ...


@dataclass(slots=True)
class ReplicaView:
    """What an operator sees of one connection."""

    peer: str
    identity: str | None
    broker_id: int | None  # a Twinlog replica's
    observer: bool
    state: LinkState
    acked: int
    next_offset: int
    bytes_per_second: int
    late: bool = False  # see ReplicaAcks


class MasterService:
    """Serves replicas until cancelled. `clock_ms` measures silences and heartbeats, so it should not jump."""

    def __init__(
        self,
        settings: Callable[[], ReplicationSettings],
        commit_log: CommitLog,
        *,
        bind_address: str,
        clock_ms: Clock,
        acks: ReplicaAcks | None = None,
        accepts: Callable[[], bool] = lambda: True,
        on_join: Callable[[], None] = lambda: None,
        on_acks: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._log = commit_log
        self._bind_address = bind_address
        self._clock_ms = clock_ms
        self._accepts = accepts
        self._on_join = on_join
        self._on_acks = on_acks
        self._links: dict[int, _Link] = {}
        self._numbers = itertools.count(1)
        self._listener: socket.socket | None = None
        self.acks = acks if acks is not None else ReplicaAcks()
        self.passes = Passes()
        self.refused = 0
        self.port = 0

    def listen(self) -> None:
        """Open the HA port; apart from `run`, so that a broker is reachable before it registers."""
        port = self._settings().listen_port
        listener = socket.socket(socket.AF_INET6 if ":" in self._bind_address else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._bind_address, port))
        except OSError as error:
            listener.close()
            raise CannotListen(self._bind_address, port, error, "haListenPort") from error
        listener.listen(128)
        listener.setblocking(False)
        self._listener, self.port = listener, listener.getsockname()[1]

    async def run(self) -> None:
        if self._listener is None:
            self.listen()
        assert self._listener is not None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tick(), name="ha-tick")
                tasks.create_task(self._accept(self._listener), name="ha-accept")
        finally:
            self._listener.close()
            self._listener = None
            for link in list(self._links.values()):
                link.close("the master is stopping")

    async def _accept(self, listener: socket.socket) -> None:
        loop, failed = asyncio.get_running_loop(), False
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors, or the peer gave up: others must still get in
                if not failed:
                    log.warning("replicas cannot be accepted; trying again", port=self.port, error=str(error))
                failed = True
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            failed = False
            try:
                self._admit(accepted, address_text(*address[:2]))
            except OSError as error:
                accepted.close()
                log.info("a replica has gone", peer=address_text(*address[:2]), reason=str(error))

    def greet(self, hello: HelloHeader, broker_name: str, cluster_name: str) -> int:
        """A pass for a Twinlog replica; JoinRefused names what does not fit."""
        return self.passes.greet(hello, broker_name, cluster_name, self._clock_ms())

    def wake(self) -> None:
        """The log has grown: send what is new. Called after each batch of appends."""
        if self._links:
            for link in list(self._links.values()):
                link.pump()

    def drop_all(self, reason: str) -> None:
        """Close every link, for a master that becomes a replica."""
        for link in list(self._links.values()):
            link.close(reason)

    def views(self) -> list[ReplicaView]:
        return [link.view() for link in self._links.values()]

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        if not self._accepts():
            accepted.close()
            self.refused += 1
            log.warning("a replica was refused", peer=peer, reason="this broker is a replica itself; ask its master")
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = next(self._numbers)
        self._links[number] = _Link(self, number, accepted, peer)
        log.info("a replica has connected", peer=peer)
        self._on_join()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for link in list(self._links.values()):
                link.tick()


class _Link:
    """One replica's socket, driven by the loop's readiness callbacks."""

    def __init__(self, service: MasterService, number: int, connected: socket.socket, peer: str) -> None:
        self._service = service
        self._number = number
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._clock_ms = service._clock_ms
        settings = service._settings()
        self._link = MasterLink(settings, self._clock_ms(), whole_history=settings.copy_whole_history)
        self._row = LinkAck(peer)
        self._guest: PassHolder | None = None
        self._head = b""
        self._at = 0
        self._left = 0
        self._file = -1
        self._file_base = -1
        self._waits_writable = False
        self._rate_mark = (self._loop.time(), 0)
        self._rate = 0
        self._closed = False
        service.acks.join(number, self._row)
        self._loop.add_reader(connected.fileno(), self._readable)

    def view(self) -> ReplicaView:
        row, link = self._row, self._link
        return ReplicaView(
            row.peer,
            row.identity,
            self._guest.broker_id if self._guest is not None else None,
            row.observer,
            link.state,
            row.acked,
            link.next_offset,
            self._rate,
            row.late,
        )

    def close(self, reason: object) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        if self._file >= 0:
            os.close(self._file)
        self._service._links.pop(self._number, None)
        self._service.acks.leave(self._number)
        if self._guest is not None:
            self._service.passes.left(self._guest)
        if isinstance(reason, ReplicationError):
            self._service.refused += 1
            log.warning("a replica was refused", peer=self._row.peer, reason=str(reason))
        else:
            log.info("a replica has gone", peer=self._row.peer, reason=str(reason), acked=self._row.acked)

    def tick(self) -> None:
        now_ms = self._clock_ms()
        if self._link.is_silent(now_ms):
            self.close(PeerSilent(self._row.peer, self._service._settings().silence_ms_max))
            return
        then, sent = self._rate_mark
        elapsed = self._loop.time() - then
        if elapsed >= 1:
            self._rate = int((self._link.bytes_sent - sent) / elapsed)
            self._rate_mark = (self._loop.time(), self._link.bytes_sent)
        self.pump()

    def pump(self) -> None:
        """Send as much as the socket takes."""
        if self._waits_writable or self._closed:
            return
        try:
            self._send_all()
        except (ReplicationError, OSError) as error:
            self.close(error)

    def _send_all(self) -> None:
        budget = _SEND_BYTES_MAX
        while True:
            if not self._head and not self._left:
                transfer = self._link.next_transfer(self._view(), self._clock_ms())
                if transfer is None:
                    self._update_row()
                    return
                self._begin(transfer)
            try:
                budget -= self._send_some()
            except BlockingIOError:
                budget = 0
            if budget <= 0:
                self._waits_writable = True
                self._loop.add_writer(self._socket.fileno(), self._writable)
                return

    def _begin(self, transfer: Transfer) -> None:
        self._head, self._at, self._left = transfer.head, transfer.physical_offset, transfer.size
        if 0 < transfer.size <= _COPIED_BYTES_MAX:
            data = self._service._log.slice(transfer.physical_offset, transfer.size)
            if data is not None:
                self._head, self._left = transfer.head + bytes(data), 0
                return
        if transfer.size:
            self._open_segment(transfer.physical_offset)

    def _send_some(self) -> int:
        if self._head:
            more = socket.MSG_MORE if self._left else 0
            self._head = self._head[self._socket.send(self._head, more) :]
            return 0
        size = min(self._left, _SEND_BYTES_MAX)
        sent = os.sendfile(self._socket.fileno(), self._file, self._at - self._file_base, size)
        if not sent:
            raise ReplicationError(
                f"the segment of {self._file_base} ends before offset {self._at}; was it cut by hand?"
            )
        self._at += sent
        self._left -= sent
        return sent

    def _open_segment(self, physical_offset: int) -> None:
        """Hold a descriptor of our own: retention may drop the segment while it is being sent."""
        segment = self._service._log.segment_at(physical_offset)
        if segment is None:
            raise ReplicationError(f"offset {physical_offset} was deleted while the replica needed it")
        if segment.base != self._file_base:
            if self._file >= 0:
                os.close(self._file)
            self._file, self._file_base = os.dup(segment.descriptor), segment.base

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._waits_writable = False
        self.pump()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(65536)
            if not data:
                self.close("it closed the connection")
                return
            self._link.receive(data, self._view(), self._clock_ms())
            self._admit_guest()
            self._update_row()
        except BlockingIOError:
            return
        except (ReplicationError, OSError) as error:
            self.close(error)
            return
        self._service._on_acks()
        self.pump()

    def _admit_guest(self) -> None:
        if self._guest is None and self._link.pass_number is not None:
            self._guest = self._service.passes.redeem(self._link.pass_number, self._clock_ms())
            self._row.identity, self._row.observer = self._guest.identity, self._guest.observer
            self._link.whole_history = self._guest.whole_history
            self._link.batches_at_once = _BATCHES_AT_ONCE
            self._link.receive(b"", self._view(), self._clock_ms())

    def _update_row(self) -> None:
        row = self._row
        was_late = row.late
        row.report(self._link.acked, usable=self._link.state is LinkState.SENDING)
        if was_late and not row.late:
            log.info("a late replica acknowledges again", peer=row.peer, acked=row.acked)

    def _view(self) -> LogBounds:
        commit_log = self._service._log
        return LogBounds(commit_log.log_start, commit_log.log_end, commit_log.segment_size)
