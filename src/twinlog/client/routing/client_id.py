"""The id under which brokers list a client."""

import contextlib
import itertools
import os
import socket

from twinlog.base.addresses import parse_address
from twinlog.base.clock import wall_clock_ns
from twinlog.net.connecting import connecting_to
from twinlog.net.errors import NetError

_instances = itertools.count(1)


def make_client_id(name_server: str, instance_name: str | None = None) -> str:
    """Unique among all clients of a cluster: this machine's address as seen from there, the process, a counter."""
    return f"{local_ip(name_server)}@{instance_name or f'{os.getpid()}#{wall_clock_ns()}#{next(_instances)}'}"


def local_ip(towards: str) -> str:
    """The address of this machine on the way to `towards`."""
    target = parse_address(towards)
    with contextlib.suppress(NetError), connecting_to(towards):
        info = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(info[4])
            return str(probe.getsockname()[0]).partition("%")[0]
    return "127.0.0.1"
