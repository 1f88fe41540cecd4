"""Who else belongs to a broker's name, asked of name servers that are old, away or silent."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from tests.broker.contexts import open_context

from twinlog.broker.naming.member_groups import MemberGroup
from twinlog.net.pool import ConnectionPool
from twinlog.net.server import Server
from twinlog.wire.bodies import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    HaRuntimeInfo,
    KVTable,
    encode_body,
)


class World:
    """Name servers and brokers, and the group that asks them."""

    def __init__(self, ctx, stack: contextlib.AsyncExitStack) -> None:
        self.name_servers: list[str] = []
        self._stack = stack
        self.pool = ConnectionPool()
        self.group = MemberGroup(ctx, self.pool, lambda: self.name_servers)
        self.name = ctx.settings.broker_name

    async def server(self, answers: dict[int, object]) -> str:
        handlers = {
            code: lambda request, body=body: request.reply(body=encode_body(body)) for code, body in answers.items()
        }
        server = Server(handlers)
        await server.start("127.0.0.1", 0)
        self._stack.push_async_callback(server.stop)
        return f"127.0.0.1:{server.port}"

    async def knows(self, members: dict[int, str], *, old: bool = False) -> None:
        group = BrokerMemberGroup(cluster="c", broker_name=self.name, broker_addrs=members)
        data = BrokerData(cluster="c", broker_name=self.name, broker_addrs=members)
        answers = {106: ClusterInfo(broker_addr_table={self.name: data}, cluster_addr_table={"c": [self.name]})}
        self.name_servers.append(await self.server(answers if old else {901: BrokerMemberGroupBody(group)}))


@pytest.fixture
async def world(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        with open_context(tmp_path) as ctx:
            world = World(ctx, stack)
            yield world
            await world.pool.close()


async def test_a_name_server_that_is_away_does_not_silence_the_others(world):
    world.name_servers.append("127.0.0.1:1")
    await world.knows({0: "a:1", 1: "b:1"})
    assert await world.group.members() == [{0: "a:1", 1: "b:1"}]
    assert await world.group.free_id() == 2


async def test_a_name_server_of_4_9_is_asked_in_the_way_it_knows(world):
    await world.knows({0: "a:1", 1: "b:1", 2: "c:1"}, old=True)
    assert await world.group.members() == [{0: "a:1", 1: "b:1", 2: "c:1"}]


async def test_a_rival_is_found_although_the_first_name_server_never_answers(world):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        world.name_servers.append(f"127.0.0.1:{mute.getsockname()[1]}")
        rival = await world.server({907: HaRuntimeInfo(master=True)})
        await world.knows({0: rival})
        async with asyncio.timeout(1):  # the patience of a start
            assert await world.group.rival(0) == rival


async def test_a_broker_that_gave_up_its_role_is_no_second_master(world):
    former = await world.server({907: HaRuntimeInfo(master=False)})
    old_java = await world.server({28: KVTable(table={})})
    await world.knows({0: former, 1: former, 2: old_java, 3: "127.0.0.1:1"})
    assert [await world.group.rival(number) for number in range(5)] == [None, former, old_java, None, None]
