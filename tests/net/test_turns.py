"""A peer that sends much at once does not keep others waiting, and one that sends nothing but errors is closed."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable

import pytest
from tests.broker.contexts import wired

from twinlog.net.admission import Admission
from twinlog.net.connection import ConnectionOptions
from twinlog.net.inbound import ERRORS_KEY, Inbound
from twinlog.net.limits import Limits
from twinlog.net.server import Server
from twinlog.net.turns import TURN_S_MAX
from twinlog.wire.command import Command, encode_command
from twinlog.wire.errors import WireError

ECHO, BAD, BAD_LATER, UNKNOWN = 10, 11, 12, 99


def frame(code: int, number: int = 1) -> bytes:
    return encode_command(Command(code, number))


def bad(request):
    raise WireError("on purpose")


async def bad_later(request):
    raise WireError("on purpose")


HANDLERS = {ECHO: lambda request: request.reply(), BAD: bad, BAD_LATER: bad_later}


def options(inbound: Inbound) -> ConnectionOptions:
    return ConnectionOptions(handlers=HANDLERS, inbound=inbound)


def half_turns():
    """A clock by which each request takes half of a turn."""
    return itertools.count(0, TURN_S_MAX / 2).__next__


async def test_of_many_peers_that_send_much_one_is_served_per_turn_of_the_loop():
    """Seen to fail without `_end_turn`: the first chunk is handled whole, and the others after it."""
    inbound = Inbound()
    clock = half_turns()
    greedy = [wired(options(inbound), clock) for _ in range(5)]
    for connection, _ in greedy:
        connection.data_received(b"".join(frame(ECHO, number) for number in range(100)))
    counts = [0]
    for _ in range(500):
        counts.append(sum(transport.data.count(b'"code":0') for _, transport in greedy))
        await asyncio.sleep(0)
    assert max(later - earlier for earlier, later in itertools.pairwise(counts[1:])) <= 3
    assert counts[-1] == 500
    for _, transport in greedy:
        assert [answer.opaque for answer in transport.take_answers()] == list(range(100)), "in their order"


async def test_a_request_that_arrives_between_two_turns_does_not_wait_for_the_rest():
    inbound, clock = Inbound(), half_turns()
    (greedy, much), (healthy, little) = wired(options(inbound), clock), wired(options(inbound), clock)
    greedy.data_received(frame(ECHO) * 100)
    await asyncio.sleep(0)
    healthy.data_received(frame(ECHO))
    assert len(little.take_answers()) == 1 and len(much.take_answers()) < 10
    greedy.data_received(frame(ECHO))  # behind what is left
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(much.take_answers()) > 90 and not greedy.is_paused


async def test_peers_that_send_much_share_one_turn():
    """Seen to fail with a turn for each connection: all of them get three requests answered."""
    inbound, clock = Inbound(), half_turns()
    greedy = [wired(options(inbound), clock) for _ in range(5)]
    for connection, _ in greedy:
        connection.data_received(frame(ECHO) * 100)
    assert [len(transport.take_answers()) for _, transport in greedy] == [4, 1, 1, 1, 1]


async def test_a_connection_that_is_lost_while_it_waits_for_its_turn_takes_none():
    inbound = Inbound()
    connection, transport = wired(options(inbound), half_turns())
    connection.data_received(frame(ECHO) * 100)
    before = len(transport.data)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(transport.data) == before and inbound.bytes == 0


async def test_a_port_accepts_one_connection_per_turn_of_the_loop():
    """Seen to fail on asyncio's own loop, which accepts all that wait before anything else runs."""
    admission = Admission()
    async with thirty_peers(admission):
        counts = await counted(lambda: admission.count, 30)
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) == 1


async def test_peers_that_speak_at_the_same_moment_get_connections_one_by_one():
    """Seen to fail without `mine`: all that are accepted become connections in one turn."""
    admission = Admission()
    async with thirty_peers(admission) as (server, peers):
        await counted(lambda: admission.count, 30)
        for peer in peers:
            peer.send(frame(ECHO))
        counts = await counted(lambda: len(server.connections), 30)
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) == 1


@contextlib.asynccontextmanager
async def thirty_peers(admission: Admission):
    server = Server(HANDLERS, admission=admission)
    await server.start("127.0.0.1", 0)
    peers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
    try:
        yield server, peers
    finally:
        for peer in peers:
            peer.close()
        await server.stop()


async def counted(count: Callable[[], int], wanted: int) -> list[int]:
    """What `count` gives in each turn of the loop, until it is `wanted`."""
    counts = [0]
    async with asyncio.timeout(20):
        while counts[-1] < wanted:
            await asyncio.sleep(0)
            counts.append(count())
    return counts


@pytest.mark.parametrize("code", [UNKNOWN, BAD, BAD_LATER])
async def test_a_peer_that_sends_nothing_but_errors_is_closed(code):
    limits = Limits()
    connection, transport = wired(options(Inbound(limits=limits, errors_max=5)))
    for _ in range(5):
        connection.data_received(frame(code))
        await asyncio.sleep(0)
    connection.data_received(frame(ECHO))
    for _ in range(5):
        connection.data_received(frame(code))
        await asyncio.sleep(0)
    assert not transport.closed and len(transport.take_answers()) == 11
    while not transport.closed:
        connection.data_received(frame(code))
        await asyncio.sleep(0)
    assert transport.closed and limits.refused == {ERRORS_KEY: 1}
