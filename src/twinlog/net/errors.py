"""What can go wrong between two peers."""

import errno
import os
import socket
import ssl

from twinlog.base.addresses import AddressError, address_text


class NetError(Exception):
    """A peer that cannot be reached, has disconnected, or did not answer."""


class ConnectFailed(NetError):
    def __init__(self, address: str, reason: object) -> None:
        self.address = address
        self.problem = f"cannot connect to {address}: {_why(reason)}"  # for errors with a hint of their own
        super().__init__(f"{self.problem}; {_next_step(reason)}")


class BadAddress(ConnectFailed):
    """A text that is not an address; no resolver has seen it."""

    def __init__(self, address: str, error: AddressError) -> None:
        NetError.__init__(self, str(error))
        self.address, self.problem = address, str(error)


def _next_step(reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "name the authority that signed its certificate (--tls-ca, or ca.pem of `twinlog tls init`)"
    if isinstance(reason, ssl.SSLError):
        return "does it serve TLS on this port?"
    return "is it running and reachable?"


def _why(reason: object) -> str:
    """The system's words. asyncio's repeat the address, and look like a piece of a program."""
    if isinstance(reason, socket.gaierror):
        return str(reason.strerror)
    is_plain = isinstance(reason, ConnectionError) or type(reason) is OSError  # an SSLError has numbers of its own
    if is_plain and isinstance(reason, OSError) and reason.errno is not None:
        return os.strerror(reason.errno)
    return str(reason)


class CannotListen(OSError):
    """A port on which this process cannot listen."""

    def __init__(self, host: str, port: int, cause: OSError, setting: str = "listenPort") -> None:
        problem = f"cannot listen on {address_text(host, port)}: {cause.strerror}"
        hint = f"stop what listens there, or choose another {setting}"
        if cause.errno == errno.EADDRNOTAVAIL:
            hint = "set bindAddress to an address of this machine, or to 0.0.0.0"
        elif cause.errno == errno.EACCES:
            hint = f"choose a {setting} above 1023, or start with the right to use this one"
        super().__init__(cause.errno, f"{problem}; {hint}")

    def __str__(self) -> str:
        return str(self.strerror)


class ConnectionLost(NetError):
    def __init__(self, peer: str, reason: object = None) -> None:
        super().__init__(f"connection to {peer} was lost" + (f": {reason}" if reason else ""))
        self.peer = peer


class RequestTimeout(NetError):
    def __init__(self, peer: str, code: int, timeout_ms: int) -> None:
        super().__init__(f"{peer} did not answer request {code} within {timeout_ms} ms")
        self.peer = peer


class RequestRefused(Exception):
    """Raised by a handler to answer with an error code; net turns it into the response."""

    def __init__(self, code: int, remark: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code, self.remark, self.fields = code, remark, fields
