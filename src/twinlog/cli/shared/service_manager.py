"""Tells systemd what a server does: that it is ready, that it stops, and that its event loop still turns.

The protocol is a datagram of NAME=value lines to the socket that the environment names (sd_notify). Without that
variable nobody asked, and nothing is sent. A manager that does not listen never stops or slows a server.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from functools import cache

_SOCKET, _INTERVAL, _PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class ServiceManager:
    """Who started this process and wants to hear from it; child processes do not inherit the address."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s  # it kills a process that was silent for so long

    @classmethod
    def of(cls, environment: MutableMapping[str, str], process_id: int) -> ServiceManager:
        """The manager that `environment` names; the names are taken out of it."""
        address = environment.pop(_SOCKET, "")
        interval, process = environment.pop(_INTERVAL, ""), environment.pop(_PROCESS, "")
        is_known = address[:1] in ("/", "@") and len(address) > 1
        is_meant = interval.isdecimal() and int(interval) > 0 and process in ("", str(process_id))
        return cls(address if is_known else None, int(interval) / 1e6 if is_known and is_meant else None)

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=stopping")

    async def watch(self) -> None:
        """Say again and again that the event loop turns, until cancelled."""
        if self.watchdog_s is None:
            return
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 3)

    def _tell(self, lines: str) -> None:
        if self._address is None:
            return
        name = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(lines.encode(), name)
        except OSError:
            pass  # a full or missing socket: the next line repeats it


@cache
def service_manager() -> ServiceManager:
    """The one of this process."""
    return ServiceManager.of(os.environ, os.getpid())
