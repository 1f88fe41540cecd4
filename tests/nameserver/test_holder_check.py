"""A stranger's registration takes nothing away from a broker that answers.

Seen to fail without the check: each attack took the route, the address or the replicas of the live broker.
"""

import asyncio
import contextlib
import json

import pytest
from tests.nameserver.test_nameserver_service import MASTER, running, until

from twinlog.nameserver import holder_check
from twinlog.net.pool import ConnectionPool
from twinlog.wire.codes import RequestCode
from twinlog.wire.twinlog_codes import TwinlogCode

REGISTER, UNREGISTER = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
FALSE = {**MASTER, "brokerAddr": "127.0.0.1:666", "haServerAddr": "127.0.0.1:667"}


def topics(state_version: int, *names: str) -> bytes:
    table = {name: {"topicName": name} for name in names}
    version = {"counter": 1, "timestamp": 1, "stateVersion": state_version}
    return json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": version}}).encode()


@contextlib.asynccontextmanager
async def stranger():
    pool = ConnectionPool()
    try:
        yield pool
    finally:
        await pool.close()


ATTACKS = {
    "another address with a larger state version": FALSE,
    "another cluster": {**FALSE, "clusterName": "Other"},
    "the same address with another HA address": {**MASTER, "haServerAddr": "127.0.0.1:667"},
    "the same address with another id": {**MASTER, "brokerId": "7"},
    "the same address under another name": {**MASTER, "brokerName": "c"},
}


@pytest.mark.parametrize("fields", ATTACKS.values(), ids=list(ATTACKS))
async def test_a_live_brokers_place_is_kept_and_the_attempt_is_logged(tmp_path, fields, caplog):
    async with running(tmp_path) as it, stranger() as other:
        table = it.service.context.table
        await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))
        before = (dict(table.brokers["b"].broker_addrs), {key: row.ha_address for key, row in table.live.items()})
        answer = await other.request(it.address, REGISTER, fields, topics(99, "T", "V"))
        assert answer.code == 1 and "brokerName=b brokerId=0 is held by 127.0.0.1:1, which answers" in answer.remark
        after = (dict(table.brokers["b"].broker_addrs), {key: row.ha_address for key, row in table.live.items()})
        assert after == before and list(table.topics) == ["T", "U"]
        assert it.service.context.limits.refused == {holder_check.REFUSED: 1}
        assert "a live broker's identity was asked for" in caplog.text
        await other.close()  # nor does its leaving take anything along
        await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))
        assert dict(table.brokers["b"].broker_addrs) == {0: "127.0.0.1:1"}


async def test_a_stranger_cannot_unregister_a_live_broker_and_the_broker_can(tmp_path):
    async with running(tmp_path) as it, stranger() as other:
        table = it.service.context.table
        await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))
        for fields in (MASTER, {**MASTER, "clusterName": "Other"}):
            assert (await other.request(it.address, UNREGISTER, fields)).code == 1
        assert list(table.topics) == ["T", "U"]
        assert (await it.pool.request(it.address, UNREGISTER, MASTER)).code == 0
        assert not table.topics


async def test_a_broker_that_restarts_at_another_address_takes_its_place_when_the_old_one_is_gone(
    tmp_path, monkeypatch
):
    """Java: a restart closes the connection; a machine that vanished does not answer."""
    monkeypatch.setattr(holder_check, "TIMEOUT_MS", 50)
    async with running(tmp_path) as it, stranger() as other:
        table = it.service.context.table
        await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))
        it.pool.drop(it.address)
        await until(lambda: not table.live)
        assert (await other.request(it.address, REGISTER, FALSE, topics(0, "T", "U"))).code == 0
        (connection,) = it.service.server.connections
        held = await other.get(it.address)
        held._options.handlers = {TwinlogCode.STILL_REGISTERED: lambda request: None}  # it does not answer any more
        assert not connection.closed
        assert (await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))).code == 0
        assert dict(table.brokers["b"].broker_addrs) == {0: "127.0.0.1:1"}


async def test_a_second_connection_of_the_same_host_may_register_the_same(tmp_path):
    """A name server that is configured twice, under two names, gets two connections of each broker."""
    async with running(tmp_path) as it, stranger() as other:
        for pool in (it.pool, other, it.pool):
            assert (await pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))).code == 0


async def test_a_master_that_has_stepped_down_says_so_before_it_has_registered_it(tmp_path):
    async with running(tmp_path) as it, stranger() as other:
        table = it.service.context.table
        await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))
        held = await it.pool.get(it.address)
        held._options.handlers = {TwinlogCode.STILL_REGISTERED: lambda request: request.reply(fields={"brokerId": "1"})}
        assert (await other.request(it.address, REGISTER, FALSE, topics(1, "T", "U"))).code == 0
        assert table.brokers["b"].broker_addrs[0] == "127.0.0.1:666"


async def test_who_asks_for_the_brokers_of_a_contested_name_gets_the_answer_when_it_is_decided(tmp_path, monkeypatch):
    """Else a master that was stopped would hear that it is still the master, just before its successor is adopted."""
    monkeypatch.setattr(holder_check, "TIMEOUT_MS", 400)
    async with running(tmp_path) as it, stranger() as other:
        await it.pool.request(it.address, REGISTER, MASTER, topics(0, "T", "U"))
        held = await it.pool.get(it.address)
        asked = asyncio.Event()
        held._options.handlers = {TwinlogCode.STILL_REGISTERED: lambda request: asked.set()}
        registering = asyncio.create_task(other.request(it.address, REGISTER, FALSE, topics(1, "T", "U")))
        await asked.wait()
        members = await it.pool.request(it.address, RequestCode.GET_BROKER_MEMBER_GROUP, {"brokerName": "b"})
        assert b"127.0.0.1:666" in members.body
        assert (await registering).code == 0
