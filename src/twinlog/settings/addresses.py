"""Network addresses in settings, and this machine's own."""

from __future__ import annotations

import contextlib
import functools
import socket


def split_addresses(text: str) -> list[str]:
    """The addresses in `host:port;host:port`."""
    return [part.strip() for part in text.split(";") if part.strip()]


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host may stand in brackets."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"address {text!r} is not host:port; write for example 127.0.0.1:9876")
    return host.strip("[]"), int(port)


def check_address(text: str) -> str | None:
    try:
        parse_address(text)
    except ValueError:
        return "is not host:port; write for example 192.0.2.1:10912"
    return None


def check_addresses(text: str) -> str | None:
    if not split_addresses(text) or any(check_address(part) for part in split_addresses(text)):
        return "is no list of host:port; write for example 192.0.2.1:9876;192.0.2.2:9876"
    return None


@functools.cache
def local_address() -> str:
    """The address under which other machines most likely reach this one."""
    # Connecting a datagram socket sends nothing; it only asks the routing table for a source address.
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]
    return "127.0.0.1"
