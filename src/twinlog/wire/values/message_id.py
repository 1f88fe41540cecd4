"""Message ids: the offset id is a broker's address and a physical offset, the unique id is made by the sender."""

import functools
import ipaddress
import itertools
import os
import socket
import struct
import time

from twinlog.wire.errors import WireError


def offset_message_id(host: str, port: int, physical_offset: int) -> str:
    """Upper-case hex of address, port and commit-log offset; 32 digits, or 56 for IPv6."""
    return (encode_host((host, port)) + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """(host, port, physical offset) of an offset id."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in (16, 28):
        raise WireError(f"message id {text[:80]!r} is not an offset id, which has 32 or 56 hexadecimal digits")
    host, port = decode_host(data[:-8])
    return host, port, int.from_bytes(data[-8:], "big", signed=True)


def encode_host(host: tuple[str, int]) -> bytes:
    """Address and port as a record holds them: 8 bytes, or 20 for IPv6."""
    return ipaddress.ip_address(host[0].partition("%")[0]).packed + (host[1] & 0xFFFFFFFF).to_bytes(4, "big")


@functools.lru_cache(maxsize=1024)  # the hosts of messages repeat, and an address takes microseconds to write
def decode_host(data: bytes) -> tuple[str, int]:
    return str(ipaddress.ip_address(data[:-4])), int.from_bytes(data[-4:], "big", signed=True)


class UniqueIds:
    """Makes ids as RocketMQ clients do: address, process, start, milliseconds of the month, counter."""

    def __init__(self, host: str = "127.0.0.1", *, seed: int | None = None) -> None:
        loader = seed if seed is not None else int.from_bytes(os.urandom(4), "big")
        address = socket.inet_aton(host) if ":" not in host else socket.inet_pton(socket.AF_INET6, host)
        self._prefix = (address + struct.pack(">HI", os.getpid() & 0xFFFF, loader & 0xFFFFFFFF)).hex().upper()
        self._counter = itertools.count()
        self._month_ms = (0, 0)

    def next(self, now_ms: int) -> str:
        start, end = self._month_ms
        if not start <= now_ms < end:
            self._month_ms = start, _ = _month_around(now_ms)
        return f"{self._prefix}{now_ms - start & 0xFFFFFFFF:08X}{next(self._counter) & 0xFFFF:04X}"


def month_ms(now_ms: int) -> int:
    """The milliseconds since this month began, the time in a unique id."""
    return now_ms - _month_around(now_ms)[0]


def _month_around(now_ms: int) -> tuple[int, int]:
    now = time.localtime(now_ms / 1000)
    start = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((now.tm_year, now.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(start * 1000), int(end * 1000)
