"""Without accounts, administration is for this machine; a known proxy is used to come from another one.

Seen to fail without the check: every request below changed something.
"""

import contextlib
from types import SimpleNamespace

import pytest
from tests.broker.running import broker_conf, connected, pull, running_broker, send
from tests.nameserver.test_holder_check import topics
from tests.nameserver.test_nameserver_service import MASTER, running

from twinlog.broker.broker import Broker
from twinlog.net.access import audited
from twinlog.net.connection import ConnectionOptions
from twinlog.net.errors import RequestRefused
from twinlog.net.limits import Limits
from twinlog.net.local_admin import OPEN_CODES, LocalAdmin
from twinlog.net.pool import connect
from twinlog.security.audit import AuditLog
from twinlog.wire.codes import RequestCode as Code
from twinlog.wire.twinlog_codes import TwinlogCode

FROM_ELSEWHERE = b"PROXY TCP4 203.0.113.7 192.0.2.1 5555 10911\r\n"
ORDINARY = {
    Code.UPDATE_CONSUMER_OFFSET,
    Code.REGISTER_BROKER,
    Code.UNREGISTER_BROKER,
    Code.REGISTER_TOPIC_IN_NAMESRV,  # of its own brokers
    Code.UNREGISTER_CLIENT,
}
CHANGING = ("UPDATE_", "DELETE_", "CLEAN_", "CLONE_", "RESET_", "SET_", "PUT_", "WIPE_", "ADD_", "REMOVE_", "AUTH_")


@contextlib.asynccontextmanager
async def from_elsewhere(address: str):
    connection = await connect(address, ConnectionOptions())
    connection._transport.write(FROM_ELSEWHERE)
    try:
        yield connection
    finally:
        connection.close()


def changing_codes(handlers):
    return {code for code in Code if code in handlers and code.name.startswith(CHANGING)} - ORDINARY


@pytest.mark.parametrize("code", [4711, 30999, TwinlogCode.CHANGE_ROLE])
def test_a_request_that_nobody_has_decided_about_is_administration_and_in_the_audit_log(tmp_path, code):
    """Seen to fail: while the codes of administration were listed, and not the others."""
    audit = AuditLog(tmp_path / "audit.log", 10_000, 2, lambda: 0)
    handlers = LocalAdmin("", Limits(), "broker.conf").around({code: lambda request: pytest.fail("answered")})
    connection = SimpleNamespace(peer=("203.0.113.7", 5555), local_host="192.0.2.1", peer_text="203.0.113.7:5555")
    request = SimpleNamespace(code=code, fields={}, body=None, connection=connection)
    with pytest.raises(RequestRefused, match="is administration"):
        audited(handlers, audit, None)[code](request)  # pyright: ignore[reportArgumentType]
    assert '"result":16' in audit.path.read_text()


async def test_every_request_that_changes_a_broker_is_refused_from_elsewhere_and_clients_are_not(tmp_path, caplog):
    conf = broker_conf(tmp_path, proxyProtocolFrom="127.0.0.1")
    async with running_broker(conf) as broker, from_elsewhere(broker.address) as connection:
        assert isinstance(broker, Broker) and broker.context is not None
        changing = changing_codes(broker.servers[0]._options.handlers) | {TwinlogCode.CHANGE_ROLE}
        assert len(changing) > 20 and not changing & OPEN_CODES
        before = broker.context.conf.properties()
        for code in changing:
            answer = await connection.request(code, {"topic": "T", "brokerRole": "SLAVE"}, b"namesrvAddr=192.0.2.9:1")
            assert answer.code == 16, code
            assert "add 203.0.113.7 to adminRequestsFrom in broker.conf and restart" in (answer.remark or "")
        assert broker.context.conf.properties() == before
        assert broker.context.limits.refused == {"adminRequestsFrom": len(changing)}
        assert "administration from another machine was refused" in caplog.text
        assert (await send(connection)).code == 0, "a topic that a send creates"
        assert (await pull(connection)).code == 0
        commit = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "1"}
        assert (await connection.request(Code.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        assert (await connection.request(Code.GET_BROKER_CONFIG)).code == 0
        async with connected(broker) as local:
            assert (await local.request(Code.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=7")).code == 0


@pytest.mark.parametrize("allowed", ["203.0.113.0/24", "*"])
async def test_listed_addresses_may_administrate(tmp_path, allowed):
    conf = broker_conf(tmp_path, proxyProtocolFrom="127.0.0.1", adminRequestsFrom=allowed)
    async with running_broker(conf) as broker, from_elsewhere(broker.address) as connection:
        assert (await connection.request(Code.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=7")).code == 0
        update = await connection.request(Code.UPDATE_BROKER_CONFIG, body=b"adminRequestsFrom=10.0.0.1")
        assert update.code == 16 and "only a restart" in (update.remark or "")


async def test_a_name_server_is_administrated_from_its_machine_and_brokers_register_from_everywhere(tmp_path):
    async with running(tmp_path, "proxyProtocolFrom=127.0.0.1\n") as it, from_elsewhere(it.address) as connection:
        handlers = it.service.server._options.handlers
        changing = changing_codes(handlers)
        assert len(changing) == 6 and not changing & OPEN_CODES
        for code in changing:
            assert (await connection.request(code, {"topic": "T", "brokerName": "b"}, b"")).code == 16, code
        own, other = (
            b'{"queueDatas":[{"brokerName":"%s","readQueueNums":1,"writeQueueNums":1}]}' % n for n in (b"b", b"c")
        )
        topic = {"topic": "N"}
        assert (await connection.request(Code.REGISTER_TOPIC_IN_NAMESRV, topic, own)).code == 16, "not registered yet"
        assert (await connection.request(Code.REGISTER_BROKER, MASTER, topics(0, "T", "U"))).code == 0
        assert (await connection.request(Code.REGISTER_TOPIC_IN_NAMESRV, topic, own)).code == 0
        assert (await connection.request(Code.REGISTER_TOPIC_IN_NAMESRV, topic, other)).code == 16
        assert list(it.service.context.table.topics) == ["T", "U", "N"]


@pytest.mark.parametrize(("bind", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_a_server_that_is_open_to_others_warns_at_the_start(tmp_path, caplog, bind, warns):
    async with running_broker(broker_conf(tmp_path, bindAddress=bind)):
        assert ("who reaches this port can read and write all topics, and copy the log" in caplog.text) == warns
