"""One connection to a master's HA port: its bytes go into the log, and reports go back.

Bytes are appended, their records checked, and only then reported: a report never covers a record whose CRC,
length or place in the log is wrong. Queues and index follow while the report is on its way.

A replica that keeps up takes what has arrived in a callback of the loop, so that its report leaves in the same
turn. One that is far behind receives in a thread, while the loop dispatches what the thread received before:

    thread   | receive and write n+1 | receive and write n+2 | ...
    loop     | dispatch, report n    | dispatch, report n+1  | ...
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import thread_time

from twinlog.net.busy_wait import BusyWait
from twinlog.net.tls_sockets import WOULD_BLOCK
from twinlog.replication.errors import PeerSilent
from twinlog.replication.replica.link import ReplicaLink
from twinlog.replication.replica.memory_reuse import MemoryReuse
from twinlog.replication.replica.status import ReplicaStatus
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.log.commit_log import RawRoom
from twinlog.store.message_store import MessageStore

_RECEIVE_BYTES = 1024 * 1024
_TURN_BYTES_MAX = 4 * 1024 * 1024  # appended per turn of the loop, before pulls get their turn
_BULK_RECEIVE_BYTES = 4 * 1024 * 1024  # at once: the thread needs the interpreter's lock after each call
_BULK_BYTES = 8 * 1024 * 1024  # received by the thread for each turn of the loop
_FAR_BEHIND_BYTES = 2 * _BULK_BYTES  # from here on the thread pays off
_BULK_PATIENCE = (0).to_bytes(8, "little") + (20_000).to_bytes(8, "little")  # a timeval: 20 ms


class Receiver:
    """Runs from its creation to `stop`; `over` ends with the reason why the link was lost.

    A replica is `awaited` when sends to its master wait for its reports: then it does not sleep between transfers that
    follow one another closely.
    """

    def __init__(
        self,
        connected: socket.socket,
        store: MessageStore,
        settings: Callable[[], ReplicationSettings],
        status: ReplicaStatus,
        clock_ms: Callable[[], int],
        ticks_ms: Callable[[], int],
        first_word: bytes,
        awaited: bool,
    ) -> None:
        self._socket = connected
        self._is_tls = isinstance(connected, ssl.SSLSocket)
        self._store = store
        self._settings = settings
        self._status = status
        self._clock_ms = clock_ms  # for people to read
        self._ticks_ms = ticks_ms  # for silences and heartbeats: does not jump
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._link = ReplicaLink(settings(), store.log_end, ticks_ms())
        self._unsent = first_word  # a pass, or nothing
        busy_wait = (lambda: settings().busy_wait_seconds) if awaited else (lambda: 0.0)
        self._busy_wait = BusyWait(busy_wait)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replica-receive")
        self._receiving: Future[int] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._memory = MemoryReuse(store)
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._report()
        self._loop.add_reader(connected.fileno(), self._readable)
        self._ticking = self._loop.create_task(self._tick())

    def end(self, reason: Exception) -> None:
        if not self.over.done():
            self.over.set_exception(reason)

    def stop(self) -> None:
        """Stop using the socket and the log; after this returns, nothing writes to the log."""
        self._ticking.cancel()
        self._loop.remove_reader(self._socket.fileno())
        if self._catching_up is not None:
            self._catching_up.cancel()
        if self._receiving is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
            wait([self._receiving])
        self._thread.shutdown()
        self._memory.stop()
        self._drop_leftovers()
        if not self.over.done():
            self.over.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1)
            now_ms = self._ticks_ms()
            self._status.measure(now_ms)
            if self._link.is_silent(now_ms):
                self.end(PeerSilent("the master", self._settings().silence_ms_max))
                return
            try:
                self._report()
            except Exception as error:
                self.end(error)
                return

    def _readable(self) -> None:
        self._busy_wait.arrived()
        try:
            taken = self._take()
            self._dispatch(taken)
        except Exception as error:
            self._loop.remove_reader(self._socket.fileno())
            self.end(error)
            return
        far_behind = taken >= _TURN_BYTES_MAX or self._backlog() >= _FAR_BEHIND_BYTES
        if (
            far_behind and not self._is_tls and self._link.continues_at(self._store.log_end)
        ):  # Java sends a header alone
            self._loop.remove_reader(self._socket.fileno())
            self._catching_up = self._loop.create_task(self._catch_up())
        else:
            self._busy_wait.expect()

    def _backlog(self) -> int:
        """Bytes that the master has for us, at least: its log may have grown since it reported its end."""
        return (self._status.master_end or 0) - self._store.log_end

    def _take(self) -> int:
        """Append everything that has arrived, or as much as a turn allows; returns the number of bytes."""
        taken = 0
        while taken < _TURN_BYTES_MAX:
            try:
                count = self._socket.recv_into(self._buffer)
            except WOULD_BLOCK:
                break
            if count == 0:
                raise ConnectionError("the master closed the connection")
            taken += count
            for append in self._link.receive(memoryview(self._buffer)[:count], self._ticks_ms()):
                self._store.append_raw(append.physical_offset, append.data)
            if count < _RECEIVE_BYTES and not self._is_tls:  # TLS gives a record at a time
                break
        return taken

    def _dispatch(self, received: int) -> None:
        """Check the whole records of what was received, report them, and let queues and index follow."""
        self._status.bytes_received += received
        self._status.last_read_ms = self._clock_ms()
        self._store.dispatch_pending(self._report)
        self._report()  # the blank end of a segment moves the end too, without a record

    async def _catch_up(self) -> None:
        """Receive in the thread until the master has nothing more to send at once."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _BULK_PATIENCE)
            self._socket.setblocking(True)
            received, more, buffer = 0, True, memoryview(bytearray(_BULK_RECEIVE_BYTES))
            while more:
                room = self._store.raw_room(_BULK_BYTES)
                self._receiving = self._thread.submit(self._receive, room, buffer)
                self._dispatch(received)
                taken = await asyncio.wrap_future(self._receiving)
                self._receiving = None
                received, more = taken, taken == room.size
                self._store.raw_written(self._link.next_offset)
                self._memory.turn()
            self._socket.setblocking(False)
            self._dispatch(received)
            self._loop.add_reader(self._socket.fileno(), self._readable)
            self._store.end_raw()
        except Exception as error:
            self.end(error)
        finally:
            self._catching_up = None

    def _drop_leftovers(self) -> None:
        """Write zeros over bytes that were written after the log's end and not yet counted as part of it.

        After a crash, recovery could take them for records that follow those of another master.
        """
        commit_log = self._store.commit_log
        self._store.end_raw()
        if self._link.next_offset > commit_log.log_end and commit_log.segments:
            commit_log.truncate(commit_log.log_end)

    def _receive(self, room: RawRoom, buffer: memoryview) -> int:
        """Fill `room`, which only this thread writes to; returns the bytes received, fewer when no more came in time.

        Meanwhile the loop uses only the part of the link that concerns reports.
        """
        at, left = room.position, room.size
        # Waiting for a full buffer is safe only if the master sends that much without a report from us.
        flags = socket.MSG_WAITALL if self._backlog() >= room.size else socket.MSG_DONTWAIT
        while left:
            wanted = min(left, len(buffer))
            try:
                count = self._socket.recv_into(buffer, wanted, flags)
            except BlockingIOError:
                break
            if count == 0:
                raise ConnectionError("the master closed the connection")
            parts = [append.data for append in self._link.receive(buffer[:count], self._ticks_ms())]
            begun = thread_time()
            written = room.write(parts, at)
            self._memory.wrote(written, thread_time() - begun)
            at += written
            left -= count
            if count < wanted:
                break
        return room.size - left

    def _report(self) -> None:
        report = self._link.appended(self._store.whole_end, self._ticks_ms())
        if report is None and not self._unsent:
            return
        data = self._unsent + (report or b"")
        with contextlib.suppress(*WOULD_BLOCK):
            data = data[self._socket.send(data, 0 if self._is_tls else socket.MSG_DONTWAIT) :]
            self._status.last_write_ms = self._clock_ms()
        self._unsent = data
