"""A replica of a protected master that checks no accounts serves its own machine; a known proxy stands for another one.

Seen to fail without `Closed`: every request below had an answer.
"""

import pytest
from tests.broker.running import broker_conf, connected, pull, running_broker
from tests.net.test_local_admin import from_elsewhere

from twinlog.replication.master.peer_rules import peer_refusal
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.wire.codes import RequestCode as Code
from twinlog.wire.codes import ResponseCode

ACCOUNT = '{"accessKey":"replica","secretKey":"its secret"}'
REPLICA = {
    "brokerRole": "SLAVE",
    "brokerId": 1,
    "innerClientAuthenticationCredentials": ACCOUNT,
    "proxyProtocolFrom": "127.0.0.1",
}


async def test_other_machines_get_nothing_and_this_one_is_served(tmp_path):
    async with running_broker(broker_conf(tmp_path, **REPLICA)) as broker, connected(broker) as local:
        handled = sorted(broker.servers[0]._options.handlers)
        assert len(handled) > 60
        async with from_elsewhere(broker.address) as stranger:
            for code in handled:
                answer = await stranger.request(code, {}, b"{}")
                assert answer.code == ResponseCode.NO_PERMISSION, code
        assert (await stranger_pull(broker.address)).remark == (
            "request 11 from 203.0.113.7 is refused: the master of this replica checks accounts, and this replica does "
            "not; set authenticationEnabled=true (RocketMQ 5) or aclEnable=true (4.9) here as on the master, or list "
            "203.0.113.7 in clientsWithoutAccountsFrom"
        )
        assert (await pull(local, topic="TBW102")).code != ResponseCode.NO_PERMISSION
        assert broker.context.limits.refused["clientsWithoutAccountsFrom"] == len(handled) + 1
        assert peer_refusal(
            broker.conf.replication, "203.0.113.7", has_accounts=broker.replication.master._has_accounts
        )


async def stranger_pull(address):
    async with from_elsewhere(address) as stranger:
        return await pull(stranger, topic="TBW102")


async def test_machines_on_the_list_read_but_do_not_administer(tmp_path):
    conf = broker_conf(tmp_path, **REPLICA, clientsWithoutAccountsFrom="203.0.113.0/24")
    async with running_broker(conf) as broker:
        assert (await stranger_pull(broker.address)).code != ResponseCode.NO_PERMISSION
        async with from_elsewhere(broker.address) as stranger:
            answer = await stranger.request(Code.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=1")
            assert answer.code == ResponseCode.NO_PERMISSION and "adminRequestsFrom" in answer.remark


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", True),
        ("authenticationEnabled=true\n", False),
        ("aclEnable=true\nrocketmqHome=/r\n", False),
        ("brokerRole=ASYNC_MASTER\n", False),
        ("innerClientAuthenticationCredentials=\n", False),
    ],
)
def test_only_a_replica_with_an_account_and_without_accounts_is_closed(more, expected):
    given = {"brokerRole": "SLAVE", "brokerId": "1", "innerClientAuthenticationCredentials": ACCOUNT}
    lines = [f"{key}={value}\n" for key, value in given.items() if f"{key}=" not in more]
    if more.startswith("innerClient"):
        more = ""
    assert load_broker_conf(text="".join(lines) + more).would_give_away is expected
