"""The two reasons why a connection cannot be opened, as our errors: a bad address, and everything else.

A resolver and a socket raise more than OSError (UnicodeError, ValueError, OverflowError), depending on the bytes of
the address, and an address may come from a peer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from twinlog.base.addresses import Address, AddressError, parse_address
from twinlog.net.errors import BadAddress, ConnectFailed


def target_of(address: str) -> Address:
    """Host and port of `address`; BadAddress, which is a NetError, when it is not one."""
    try:
        return parse_address(address)
    except AddressError as error:
        raise BadAddress(address, error) from error


@contextlib.contextmanager
def connecting_to(address: str) -> Generator[None]:
    """Around everything that resolves or connects: each of its errors is a ConnectFailed."""
    try:
        yield
    except (OSError, ValueError, OverflowError) as error:  # ssl.SSLError and TimeoutError are OSErrors
        raise ConnectFailed(address, error) from error


def below(address: str, ports: int) -> str:
    """The address so many ports below, as text; BadAddress when there is none."""
    try:
        return str(target_of(address).below(ports))
    except AddressError as error:
        raise BadAddress(address, error) from error
