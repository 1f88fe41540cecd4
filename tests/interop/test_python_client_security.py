"""Twinlog's own client with Java brokers that check signatures, and over TLS."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interop.clusters import Cluster
from tests.interop.java_rocketmq import JavaRocketmq
from tests.interop.patient import OPTIONS, Producer
from tests.interop.python_client import FIRST, Got, registered, until

from twinlog.client import (
    BrokerRefused,
    Credentials,
    Outgoing,
    PushConsumer,
    SendStatus,
    tls_context,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]

PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
CHECKED = {
    "4.9.7": {"aclEnable": "true"},  # accounts in conf/plain_acl.yml
    "5.5.0": {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{PROVIDERS}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": '{"username":"twinlogkey","password":"12345678"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"twinlogkey","secretKey":"12345678"}',
    },
}


@pytest.mark.parametrize("version", CHECKED)
async def test_signed_requests_pass_a_broker_that_checks_them(version, tmp_path):
    java = JavaRocketmq(version)
    home = tmp_path / "broker"
    account = "accounts:\n- accessKey: twinlogkey\n  secretKey: '12345678'\n  admin: true\n"
    _write(home / "conf" / "plain_acl.yml", account)
    credentials = Credentials("twinlogkey", "12345678")
    with java.name_server(tmp_path / "ns") as names, java.broker(home, names.address, **CHECKED[version]) as broker:
        await asyncio.to_thread(registered, Cluster(java, names, broker))
        good, bad = (
            replace(OPTIONS, credentials=credentials),
            replace(OPTIONS, credentials=Credentials("twinlogkey", "wrong")),
        )
        async with Producer(names.address, "P", options=good) as producer:
            assert (await producer.send(Outgoing("Signed", "x"))).status is SendStatus.OK
        async with Producer(names.address, "P", options=bad) as producer:
            queue = (await producer.queues("Signed"))[0]
            with pytest.raises(BrokerRefused, match=r"[Ss]ignature"):
                await producer.send(Outgoing("Signed", "x"), queue=queue)
        refused = PushConsumer(names.address, "G", Got(), options=bad)
        refused.subscribe("Signed")
        with pytest.raises(BrokerRefused, match=r"[Ss]ignature"):
            await refused.start()
        got = Got()
        accepted = PushConsumer(names.address, "G", got, options=good, consumer_options=FIRST)
        accepted.subscribe("Signed")
        async with accepted:
            await until(lambda: set(got.bodies) == {"x"})


async def test_tls_connections_work(clusters):
    place = await asyncio.to_thread(registered, clusters.get("java-5.5.0", use="python-client"))
    options = replace(OPTIONS, tls=tls_context(verify=False))
    async with Producer(place.names.address, "P_tls", options=options) as producer:
        assert (await producer.send(Outgoing("OverTls", "x"))).status is SendStatus.OK


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
