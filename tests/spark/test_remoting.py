"""A frame in several pieces arrives whole however little the socket takes at a time."""

import socket
import threading

import pytest

from twinlog.net.errors import ConnectionLost
from twinlog.spark import remoting
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.remoting import BlockingConnection


@pytest.fixture
def pair(monkeypatch):
    own, peer = socket.socketpair()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    monkeypatch.setattr(remoting, "_connect", lambda address, options: own)
    yield BlockingConnection("test:1", ClusterOptions(name_servers=("test:1",), request_timeout_ms=20_000)), peer
    own.close()
    peer.close()


def received(peer: socket.socket, step: int) -> bytes:
    data = bytearray()
    while part := peer.recv(step):
        data += part
    return bytes(data)


@pytest.mark.parametrize("sizes", [(100, 300_000), (70_000, 1), (1, 0, 90_000, 5), (3,)])
def test_pieces_arrive_in_order_and_whole(pair, sizes):
    connection, peer = pair
    parts = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(received(peer, 1000)), daemon=True)
    reader.start()
    connection.send_parts([parts[0], *map(memoryview, parts[1:])])
    connection.close()
    reader.join(20)
    assert found == [b"".join(parts)]


def test_a_peer_that_closes_in_the_middle_is_a_lost_connection(pair):
    connection, peer = pair
    peer_reads = threading.Thread(target=lambda: (peer.recv(1000), peer.close()), daemon=True)
    peer_reads.start()
    with pytest.raises(ConnectionLost, match="test:1"):
        connection.send_parts([b"head", memoryview(bytes(1_000_000))])
    peer_reads.join(20)
