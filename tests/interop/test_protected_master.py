"""A Twinlog replica of Java masters that check signatures: log and metadata come with the right account only."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import OPTIONS, Producer
from tests.interop.python_client import FIRST, Got
from tests.interop.python_client import until as arrived
from tests.interop.replica_pair import FILES_OF_49, TYPED, same_config, same_logs, until
from tests.interop.test_python_client_security import CHECKED
from tests.interop.twinlog_servers import TWINLOG, Twinlog

from twinlog.client import Admin, BrokerRefused, Credentials, Outgoing, PushConsumer, SendStatus
from twinlog.wire.codes import RequestCode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]

AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"
PROTECTED = {
    "4.9.7": CHECKED["4.9.7"],
    "5.5.0": {
        **CHECKED["5.5.0"],
        "authorizationEnabled": "true",
        "authorizationProvider": f"{AUTHORIZATION}.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{AUTHORIZATION}.LocalAuthorizationMetadataProvider",
    },
}
RIGHT = '{"accessKey":"twinlogkey","secretKey":"12345678"}'
WRONG = '{"accessKey":"twinlogkey","secretKey":"wrong"}'
ACCOUNT = replace(OPTIONS, credentials=Credentials("twinlogkey", "12345678"))
KEY = "innerClientAuthenticationCredentials"


def status(names: str) -> dict:
    """What `twinlog replication status` shows of the replica; its own requests are signed too."""
    keys = {"ROCKETMQ_ACCESS_KEY": "twinlogkey", "ROCKETMQ_SECRET_KEY": "12345678"}
    command = [*TWINLOG, "replication", "status", "-n", names, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **keys})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", PROTECTED)
def test_a_replica_with_an_account_follows_a_protected_java_master(version, tmp_path: Path):
    java, twinlog = JavaRocketmq(version), Twinlog()
    account = "accounts:\n- accessKey: twinlogkey\n  secretKey: '12345678'\n  admin: true\n"
    file = tmp_path / "master" / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(account)
    shared = {"brokerName": "guarded", "mappedFileSizeCommitLog": str(1 << 20)}
    slave = {**shared, "brokerRole": "SLAVE", "brokerId": "1"}
    with (
        twinlog.name_server(tmp_path / "names") as names,
        java.broker(tmp_path / "master", names.address, **shared, **PROTECTED[version]) as master,
    ):
        asyncio.run(send(names.address, 300))
        asyncio.run(consume(names.address))
        with twinlog.broker(tmp_path / "wrong", names.address, **slave, **{KEY: WRONG}) as refused:
            until(lambda: "ignature" in json.dumps(status(names.address)), "the wrong account is reported")
            assert not same_config(master.store, refused.store, "topics.json", versions=False)
        carries: dict[str, str] = {}
        if version == "4.9.7":
            (tmp_path / "right" / "conf" / "acl").mkdir(parents=True)
            carries = {"aclEnable": "true", "rocketmqHome": str(tmp_path / "right")}
        with twinlog.broker(tmp_path / "right", names.address, **slave, **carries, **{KEY: RIGHT}) as replica:
            asyncio.run(send(names.address, 50))
            until(lambda: same_logs(master.store, replica.store), "the log is the master's")
            for name in TYPED if version != "4.9.7" else FILES_OF_49:
                until(
                    lambda name=name: same_config(master.store, replica.store, name, versions=version != "4.9.7"),
                    f"{name} is the master's",
                    seconds=60,
                )
            if version == "4.9.7":
                carried = tmp_path / "right" / "conf" / "acl" / "from-master.yml"
                until(lambda: carried.exists() and "twinlogkey" in carried.read_text(), "the accounts are the master's")
                assert asyncio.run(pulled(replica.address, None)) == "No accessKey is configured"
                assert asyncio.run(pulled(replica.address, ACCOUNT.credentials)) == ""


async def consume(names: str) -> None:
    """Leave a group with offsets on the master."""
    got = Got()
    consumer = PushConsumer(names, "CG", got, options=ACCOUNT, consumer_options=FIRST)
    consumer.subscribe("Guarded")
    async with consumer:
        await arrived(lambda: len(got.bodies) > 10)


async def pulled(address: str, account: Credentials | None) -> str:
    """What a replica answers to who wants to know its topics; "" when it gives them."""
    async with Admin(address, options=replace(OPTIONS, credentials=account)) as admin:
        try:
            await admin.ask_broker(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        except BrokerRefused as error:
            return str(error).rpartition("AclException: ")[2].partition(";")[0].strip()
    return ""


async def send(names: str, count: int) -> None:
    async with Producer(names, "PG", options=ACCOUNT) as producer:
        for number in range(count):
            delay = 1 if number % 50 == 0 else 0
            result = await producer.send(Outgoing("Guarded", b"%d" % number, delay_level=delay))
            assert result.status is SendStatus.OK
