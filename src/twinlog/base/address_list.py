"""A list of addresses and networks in a setting: 192.0.2.1;10.0.0.0/8;fd00::/8, or * for every address."""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass

EVERYWHERE = "*"
_HINT = "write for example 192.0.2.1;10.0.0.0/8, or * for every address"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class AddressList:
    """Which addresses are on the list; an empty list has none."""

    networks: tuple[Network, ...] = ()
    has_all: bool = False

    def __contains__(self, host: object) -> bool:
        if self.has_all:
            return True
        address = _address(str(host)) if self.networks else None
        return address is not None and any(address in network for network in self.networks)

    def __bool__(self) -> bool:
        return self.has_all or bool(self.networks)


@functools.lru_cache(maxsize=64)
def address_list(text: str | None) -> AddressList:
    """The list in the text of a setting, which `check_address_list` has accepted."""
    parts = _parts(text or "")
    if EVERYWHERE in parts:
        return AddressList(has_all=True)
    return AddressList(tuple(ipaddress.ip_network(part, strict=False) for part in parts))


def check_address_list(text: str) -> str | None:
    """What is wrong with the value of a setting that is a list of addresses and networks."""
    for part in _parts(text):
        if part != EVERYWHERE:
            try:
                ipaddress.ip_network(part, strict=False)
            except ValueError:
                return f"is not a list of addresses ({part[:60]!r} is not one); {_HINT}"
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can have this address."""
    address = _address(host)
    return address is not None and address.is_loopback


def plain_host(host: str) -> str:
    """`host`, but an IPv4 address as such: a port for both families shows 192.0.2.1 as ::ffff:192.0.2.1."""
    return str(_address(host) or host) if host.startswith("::") else host


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)  # how a port for both families shows an IPv4 peer
    return address if mapped is None else mapped
