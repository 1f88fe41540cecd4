"""Network addresses: read by one function, written by one function; and this machine's own."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
import socket
from dataclasses import dataclass

PORT_MAX = 65535
VIP_PORT_BELOW = 2  # RocketMQ: a broker answers everything but pulls on listenPort - 2 too
_TEXT_LENGTH_MAX = 300  # a host name has at most 253 characters
_HOST_LENGTH_MAX = 253
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]+")
_SHOWN_LENGTH_MAX = 60


class AddressError(ValueError):
    """A text that is not an address; no resolver has seen it."""

    def __init__(self, text: str, problem: str) -> None:
        shown = text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}..."
        super().__init__(f"address {shown!r} is not host:port: {problem}; write for example 192.0.2.1:9876")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Address:
    """A host (a name, an IPv4 or an IPv6 address) and a port from 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)

    def below(self, ports: int) -> Address:
        """The address so many ports below this one."""
        if self.port <= ports:
            raise AddressError(str(self), f"there is no port {ports} below {self.port}")
        return Address(self.host, self.port - ports)


def address_text(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets; `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def java_address_text(host: str, port: int) -> str:
    """The same as a broker registers it: Java writes no brackets."""
    return f"{host}:{port}"


def parse_address(text: str) -> Address:
    """The address in `host:port`; an IPv6 host may be in brackets. AddressError for everything else."""
    text = text.strip()
    if len(text) > _TEXT_LENGTH_MAX:
        raise AddressError(text, f"{len(text)} characters are too many")
    host, colon, port = text.rpartition(":")
    if not (colon and host):
        raise AddressError(text, "host or port is missing")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise AddressError(text, f"the port is not a number from 1 to {PORT_MAX}")
    host = _without_brackets(host)
    if problem := host_problem(host):
        raise AddressError(text, problem)
    return Address(host, int(port))


def host_problem(host: str) -> str | None:
    """Why a resolver would not take `host`, or None. A name is not resolved, so it may still not exist."""
    if ":" in host:
        address, percent, zone = host.partition("%")
        with contextlib.suppress(ValueError):
            ipaddress.IPv6Address(address)
            if not percent or _ZONE.fullmatch(zone):
                return None
        return "the host is not an IPv6 address"
    if len(host) > _HOST_LENGTH_MAX:
        return f"the host has {len(host)} characters, and {_HOST_LENGTH_MAX} are the most"
    try:
        name = host.encode("idna").decode("ascii")  # what the system's resolver gets
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name):
        return "the host is not a host name or IP address"
    return None


def is_address(text: str) -> bool:
    """Whether `parse_address` takes `text`."""
    try:
        parse_address(text)
    except AddressError:
        return False
    return True


def split_addresses(text: str) -> list[str]:
    """The addresses in `host:port;host:port`."""
    return [part.strip() for part in text.split(";") if part.strip()]


def check_address(text: str) -> str | None:
    """What is wrong with the value of a setting that is an address."""
    try:
        parse_address(text)
    except AddressError as error:
        return f"is not host:port ({error.problem}); write for example 192.0.2.1:10912"
    return None


def check_addresses(text: str) -> str | None:
    """What is wrong with the value of a setting that is a list of addresses."""
    hint = "write for example 192.0.2.1:9876;192.0.2.2:9876"
    if not split_addresses(text):
        return f"is not a list of host:port; {hint}"
    for part in split_addresses(text):
        try:
            parse_address(part)
        except AddressError as error:
            return f"is not a list of host:port ({part[:_SHOWN_LENGTH_MAX]}: {error.problem}); {hint}"
    return None


def check_host(text: str) -> str | None:
    """What is wrong with the value of a setting that is a host."""
    problem = host_problem(_without_brackets(text))
    return None if problem is None else f"is not a host ({problem}); write for example 192.0.2.1"


def check_bind_address(text: str) -> str | None:
    """As `check_host`; an empty text means every address of this machine."""
    return check_host(text) if text else None


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host


@functools.cache
def own_ip_address(host: str) -> str:
    """`host`, a name or an address of this machine, as an IP address, for records and ids that hold no names.

    A name is resolved once, so that it stays the same; one that is not known yet is this machine's likely address.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host)).partition("%")[0]
    with contextlib.suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        first = min(found, key=lambda one: one[0] != socket.AF_INET)
        return str(first[4][0]).partition("%")[0]
    return local_address()


@functools.cache
def local_address() -> str:
    """The address under which other machines most likely reach this one."""
    # Connecting a datagram socket sends nothing; it only asks the routing table for a source address.
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]
    return "127.0.0.1"
