"""Where a master's bytes come from: its HA port, or its store directory.

On the HA port this acts as a replica, but reports only what is durable. A Twinlog master sees by the pass that it is an
observer. A Java master counts it as a replica, which is safe.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from twinlog.base.clock import monotonic_ms
from twinlog.net.connecting import connecting_to, target_of
from twinlog.net.errors import ConnectFailed
from twinlog.replication.errors import PeerSilent, ReplicationError
from twinlog.replication.replica.link import Append, ReplicaLink
from twinlog.replication.transfer import encode_pass
from twinlog.settings.replication import ReplicationSettings
from twinlog.store.log.segment import segment_name, segment_size_of

CHUNK_BYTES = 2 * 1024 * 1024  # fits into a processor's cache: larger chunks are slower
_CONNECT_SECONDS = 5
_SETTINGS = ReplicationSettings()


class LogSource(Protocol):
    name: str

    def receive(self, seconds_max: float) -> Sequence[Append]:
        """The next bytes, in views that are valid until the next call; empty if none came in time."""
        ...

    def report(self, log_end: int) -> None:
        """Report that all bytes before `log_end` are durable."""
        ...

    def close(self) -> None: ...


class HaSource:
    """A connection to a master's HA port."""

    name = "ha"

    def __init__(self, address: str, log_end: int, pass_number: int | None, tls: ssl.SSLContext | None = None) -> None:
        self._link = ReplicaLink(_SETTINGS, log_end, monotonic_ms())
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._durable_end = log_end
        try:
            target = target_of(address)
            with connecting_to(address):
                self._socket = socket.create_connection((target.host, target.port), _CONNECT_SECONDS)
        except ConnectFailed as error:
            raise ReplicationError(f"the master's HA port {address} cannot be reached: {error}") from error
        self._address = address
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                with connecting_to(address):
                    self._socket = tls.wrap_socket(self._socket, server_hostname=target.host)
            if pass_number is not None:
                self._socket.sendall(encode_pass(pass_number))
            self.report(log_end)
        except BaseException:
            self._socket.close()
            raise

    def receive(self, seconds_max: float) -> Sequence[Append]:
        self._socket.settimeout(max(seconds_max, 0.001))
        try:
            count = self._socket.recv_into(self._buffer)
        except TimeoutError:
            if self._link.is_silent(monotonic_ms()):
                raise PeerSilent(self._address, _SETTINGS.silence_ms_max) from None
            self.report(self._durable_end)
            return ()
        if count == 0:
            raise ConnectionError(f"{self._address} closed the connection")
        return self._link.receive(self._buffer[:count], monotonic_ms())

    def report(self, log_end: int) -> None:
        self._durable_end = log_end
        report = self._link.appended(log_end, monotonic_ms())
        if report is not None:
            self._socket.settimeout(_CONNECT_SECONDS)
            self._socket.sendall(report)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StoreSource:
    """The commit-log files of a master, which may be running."""

    name = "store"

    def __init__(self, root: str, log_end: int, master_end: int) -> None:
        self._directory = Path(root) / "commitlog"
        self._at = log_end
        self._end = master_end
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._file, self._base, self._size = -1, -1, 0
        self._segment_bytes = segment_size_of([self._directory]) or 0
        if not self._segment_bytes:
            raise ReplicationError(f"{self._directory} holds no commit log: give the master's storePathRootDir")

    @classmethod
    def is_reachable(cls, root: str) -> bool:
        return (Path(root) / "commitlog").is_dir()

    def receive(self, seconds_max: float) -> Sequence[Append]:
        self._open(self._at - self._at % self._segment_bytes)
        position = self._at - self._base
        size = min(len(self._buffer), self._end - self._at, self._segment_bytes - position)
        if size <= 0:
            return ()
        count = os.preadv(self._file, [self._buffer[:size]], position)
        if count == 0:
            raise ReplicationError(f"{self._directory} ends at {self._at}, its broker reports {self._end}")
        append = Append(self._at, self._buffer[:count])
        self._at += count
        return (append,)

    def report(self, log_end: int) -> None:
        """Nothing to do: a directory takes no reports."""

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, base: int) -> None:
        if base == self._base:
            return
        self.close()
        path = self._directory / segment_name(base)
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ReplicationError(
                f"{path} does not exist, and the replica needs it next: is it the right store?"
            ) from None
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._base = base
