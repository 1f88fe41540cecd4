"""One replica's connection to the HA port: sends it the log as it grows, and takes its reports.

Everything happens in callbacks of the event loop, so that a byte appended by a send leaves for the replica in
the same turn: no task is woken, and nothing is polled. Data goes from the segment files to the socket by sendfile.
`link.py` decides what is sent and which reports count.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from twinlog.base.system_calls import MSG_MORE, send_file
from twinlog.net.tls_sockets import WOULD_BLOCK
from twinlog.replication.errors import JoinRefused, PeerSilent, ReplicationError
from twinlog.replication.master.link import LinkState, LogBounds, MasterLink, Transfer
from twinlog.replication.master.passes import Passes, PassHolder
from twinlog.replication.master.replica_acks import LinkAck, ReplicaAcks
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.log.commit_log import CommitLog
from twinlog.telemetry.log import get_logger

log = get_logger(__name__)
_SEND_BYTES_MAX = 1024 * 1024  # per turn of the loop and replica, so that sends are not kept waiting
_TLS_BYTES = 256 * 1024  # encrypted at once; sendfile cannot be used
_COPIED_BYTES_MAX = 16 * 1024  # up to here one call with a copy is cheaper than a call for the head and a sendfile
_BATCHES_AT_ONCE = 4  # a Twinlog replica that is behind takes them a tenth faster, a Java replica more slowly


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
    behind: bool = False


class ReplicaConnection:
    """One replica's socket, driven by the loop's readiness callbacks."""

    def __init__(
        self,
        number: int,
        connected: socket.socket,
        peer: str,
        *,
        settings: Callable[[], ReplicationSettings],
        commit_log: CommitLog,
        clock_ms: Callable[[], int],
        acks: ReplicaAcks,
        passes: Passes,
        refusal: Callable[[], str | None],
        on_join: Callable[[], None],
        on_acks: Callable[[], None],
        on_close: Callable[[ReplicaConnection, bool], None],
    ) -> None:
        self.number = number
        self._socket = connected
        self._is_tls = isinstance(connected, ssl.SSLSocket)
        self._settings = settings
        self._log = commit_log
        self._clock_ms = clock_ms
        self._acks = acks
        self._passes = passes
        self._refusal = refusal
        self._on_join = on_join
        self.is_admitted = False
        self._on_acks = on_acks
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._link = MasterLink(settings(), clock_ms(), whole_history=settings().copy_whole_history)
        self._row = LinkAck(peer)
        self._holder: PassHolder | None = None
        self._head = b""  # of the transfer that is being sent, or what is left of it
        self._at = 0  # the next byte of its data
        self._left = 0  # bytes of its data that are still to be sent
        self._file = -1
        self._file_base: int = -1
        self._waits_writable = False
        self._rate_mark = (self._loop.time(), 0)
        self._rate = 0
        self._closed = False
        self._loop.add_reader(connected.fileno(), self._readable)

    def view(self) -> ReplicaView:
        row, link = self._row, self._link
        return ReplicaView(
            row.peer,
            row.identity,
            self._holder.broker_id if self._holder is not None else None,
            row.observer,
            link.state,
            row.acked,
            link.next_offset,
            self._rate,
            row.late,
            row.behind,
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
        self._acks.leave(self.number)
        if self._holder is not None:
            self._passes.release(self._holder)
        is_refused = isinstance(reason, ReplicationError)
        self._on_close(self, is_refused)
        if is_refused:
            log.warning("a replica was refused", peer=self._row.peer, reason=str(reason))
        else:
            log.info("a replica has gone", peer=self._row.peer, reason=str(reason), acked=self._row.acked)

    def tick(self) -> None:
        now_ms = self._clock_ms()
        if self._link.is_silent(now_ms):
            self.close(PeerSilent(self._row.peer, self._settings().silence_ms_max))
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
                transfer = self._link.next_transfer(self._bounds(), self._clock_ms())
                if transfer is None:
                    self._update_row()
                    return
                self._begin(transfer)
            try:
                budget -= self._send_some()
            except WOULD_BLOCK:
                budget = 0
            if budget <= 0:
                self._waits_writable = True
                self._loop.add_writer(self._socket.fileno(), self._writable)
                return

    def _begin(self, transfer: Transfer) -> None:
        self._head, self._at, self._left = transfer.head, transfer.physical_offset, transfer.size
        if 0 < transfer.size <= _COPIED_BYTES_MAX:
            data = self._log.slice(transfer.physical_offset, transfer.size)
            if data is not None:
                self._head, self._left = transfer.head + bytes(data), 0
                return
        if transfer.size:
            self._open_segment(transfer.physical_offset)

    def _send_some(self) -> int:
        if self._head:
            more = MSG_MORE if self._left and not self._is_tls else 0
            self._head = self._head[self._socket.send(self._head, more) :]
            return 0
        size = min(self._left, _SEND_BYTES_MAX)
        if self._is_tls:
            data = os.pread(self._file, min(size, _TLS_BYTES), self._at - self._file_base)
            sent = self._socket.send(data) if data else 0
        else:
            sent = send_file(self._socket.fileno(), self._file, self._at - self._file_base, size)
        if not sent:
            raise ReplicationError(
                f"the segment of {self._file_base} ends before offset {self._at}; was it cut by hand?"
            )
        self._at += sent
        self._left -= sent
        return sent

    def _open_segment(self, physical_offset: int) -> None:
        """Keep a descriptor of our own: retention may delete the segment while it is being sent."""
        segment = self._log.segment_at(physical_offset)
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
            self._link.receive(data, self._bounds(), self._clock_ms())
            self._admit()
            self._update_row()
        except WOULD_BLOCK:
            return
        except (ReplicationError, OSError) as error:
            self.close(error)
            return
        self._on_acks()
        self.pump()

    def _admit(self) -> None:
        """With the first word it is known who the peer is; a stranger is not sent a byte, and never counted."""
        link = self._link
        if self.is_admitted or (link.pass_number is None and link.requested is None):
            return
        if link.pass_number is None and (refusal := self._refusal()) is not None:
            raise JoinRefused(refusal)
        self._redeem_pass()
        self.is_admitted = True
        self._acks.join(self.number, self._row)
        by = "its pass" if self._holder is not None else "its address, as a Java replica"
        log.info("a replica has connected", peer=self._row.peer, admitted_by=by)
        self._on_join()

    def _redeem_pass(self) -> None:
        if self._holder is None and self._link.pass_number is not None:
            self._holder = self._passes.redeem(self._link.pass_number, self._clock_ms())
            self._row.identity, self._row.observer = self._holder.identity, self._holder.observer
            self._link.whole_history = self._holder.whole_history
            self._link.batches_at_once = _BATCHES_AT_ONCE
            self._link.receive(b"", self._bounds(), self._clock_ms())

    def _update_row(self) -> None:
        row = self._row
        was_late = row.late
        row.report(self._link.acked, usable=self._link.state is LinkState.SENDING)
        if was_late and not row.late:
            log.info("a late replica acknowledges again", peer=row.peer, acked=row.acked)

    def _bounds(self) -> LogBounds:
        commit_log = self._log
        return LogBounds(commit_log.log_start, commit_log.log_end, commit_log.segment_size)
