"""Whatever an address makes the resolver or the socket raise, the caller sees a NetError."""

import asyncio
import gc

import pytest

from twinlog.net.connecting import below, target_of
from twinlog.net.connection import ConnectionOptions
from twinlog.net.errors import BadAddress, ConnectFailed, NetError
from twinlog.net.pool import ConnectionPool, connect


@pytest.mark.parametrize("bad", ["..:5", "", "host", "a\0b:5", "h:0", "h:99999", f"{'a' * 70}:1", "h:²"])
async def test_what_is_not_an_address_is_a_net_error_with_the_reason(bad):
    pool = ConnectionPool()
    for call in (pool.get(bad), pool.request(bad, 1), pool.oneway(bad, 1), connect(bad, ConnectionOptions())):
        with pytest.raises(BadAddress, match="host:port"):
            await call
    with pytest.raises(NetError, match="host:port"):
        target_of(bad)


def test_a_port_below_the_first_is_a_net_error():
    assert below("[::1]:10911", 2) == "[::1]:10909"
    with pytest.raises(BadAddress, match="no port 2 below 1"):
        below("h:1", 2)


@pytest.mark.parametrize(
    "raised",
    [
        UnicodeError("label empty or too long"),
        OSError("no such name"),
        ValueError("embedded null"),
        OverflowError("port"),
    ],
)
async def test_every_error_of_a_resolver_is_a_failed_connection(monkeypatch, raised):
    async def resolve(*args, **kwargs):
        raise raised

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(ConnectFailed, match=r"cannot connect to name\.example:5"):
        await ConnectionPool().get("name.example:5")


async def test_an_attempt_to_connect_without_callers_fails_quietly(monkeypatch):
    forgotten: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: forgotten.append(context["message"]))
    asked, go = asyncio.Event(), asyncio.Event()

    async def refuse(*_, **__):
        asked.set()
        await go.wait()
        raise ConnectFailed("127.0.0.1:1", "refused")

    monkeypatch.setattr("twinlog.net.pool.connect", refuse)
    pool = ConnectionPool()
    waiting = asyncio.create_task(pool.get("127.0.0.1:1"))
    await asked.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    del waiting
    go.set()
    while pool._opening:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    assert forgotten == []
