"""A name server or a master that answers nonsense: the broker goes on, says so, and follows again when it is sane."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from tests.broker.running import broker_conf, connected, running_broker, send
from tests.replication.cluster import QUICK, status

from twinlog.net.connection import Request
from twinlog.net.server import Server
from twinlog.wire.codes import RequestCode
from twinlog.wire.command import Command

REPLICA = {"brokerRole": "SLAVE", "brokerId": 1, **QUICK}


@contextlib.asynccontextmanager
async def playing(handlers: dict[int, Callable[[Request], Command | None]]) -> AsyncIterator[str]:
    """A server with these answers; yields its address."""
    server = Server(handlers)
    await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def looked_at(seconds: float, broker) -> None:
    """Let the tasks have several rounds; the broker must still answer after them."""
    await asyncio.sleep(seconds)
    assert (await status(broker))["role"]


async def test_a_replica_outlives_addresses_that_no_resolver_takes(tmp_path):
    asked = []

    def registered(request: Request) -> Command:
        asked.append(request)
        return request.reply(fields={"masterAddr": "..:5", "haServerAddr": "..:5"})

    members = b'{"brokerMemberGroup":{"cluster":"C","brokerName":"broker-a","brokerAddrs":{0:"..:5",2:"a b:1"}}}'
    answers = {
        RequestCode.REGISTER_BROKER: registered,
        RequestCode.GET_BROKER_MEMBER_GROUP: lambda request: request.reply(body=members),
    }
    async with (
        playing(answers) as names,
        running_broker(broker_conf(tmp_path, namesrvAddr=names, **REPLICA)) as broker,
    ):
        await looked_at(1.3, broker)
        assert asked and (await status(broker))["following"]["state"] == "waiting"


@pytest.mark.parametrize("line", ["namesrvAddr=..:5", "namesrvAddr=127.0.0.1:1;..:5", "haMasterAddress=a..b:5"])
async def test_a_bad_address_is_refused_before_it_is_written(tmp_path, line):
    conf_file = tmp_path / "broker.conf"
    conf_file.write_text("brokerName=broker-a\n")
    async with running_broker(broker_conf(tmp_path)) as broker, connected(broker) as connection:
        assert broker.context is not None
        before = broker.context.conf.properties()
        answer = await connection.request(RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())
        assert answer.code == 1 and line in (answer.remark or "") and "write for example" in (answer.remark or "")
        assert broker.context.conf.properties() == before
        assert (await send(connection)).code == 0
