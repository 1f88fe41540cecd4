"""A name server with accounts: strangers wipe no route."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from twinlog.client.signing import Credentials, sign
from twinlog.nameserver.nameserver_service import NameServerService
from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.net.pool import connect
from twinlog.settings.nameserver_conf import load_nameserver_conf
from twinlog.wire.codes import RequestCode

ROOT, BOB = Credentials("root", "root secret"), Credentials("bob", "bob secret")


@contextlib.asynccontextmanager
async def running(root: Path) -> AsyncIterator[NameServerService]:
    text = f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={root}/kvConfig.json\nauthenticationEnabled=true\n"
    text += 'authorizationEnabled=true\ninitAuthenticationUser={"username":"root","password":"root secret"}\n'
    ready = asyncio.Event()
    service = NameServerService(load_nameserver_conf(text=text), on_ready=lambda _: ready.set())
    task = asyncio.create_task(service.run())
    try:
        async with asyncio.timeout(20):
            await ready.wait()
        yield service
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def asking(service: NameServerService, who: Credentials | None) -> AsyncIterator[Connection]:
    before = None if who is None else lambda command: sign(command, who)
    connection = await connect(f"127.0.0.1:{service.port}", ConnectionOptions(before_request=before))
    try:
        yield connection
    finally:
        connection.close()


async def test_a_stranger_gets_nothing_and_changes_nothing(tmp_path: Path):
    """Seen to fail: without `protected` in the service."""
    async with running(tmp_path) as service, asking(service, None) as stranger:
        for code in RequestCode:
            answer = await stranger.request(code, {"topic": "T", "brokerName": "a", "clusterName": "c"}, b"{}")
            assert answer.code in (16, 3), code
            assert not answer.body


async def test_accounts_are_managed_by_request_and_kept(tmp_path: Path):
    async with running(tmp_path) as service, asking(service, ROOT) as root:
        assert (await root.request(3001, {"username": "bob"}, b'{"password":"bob secret"}')).code == 0
        acl = b'{"policies":[{"entries":[{"resource":"Topic:T","actions":["Sub"],"decision":"Allow"}]}]}'
        assert (await root.request(3006, {"subject": "User:bob"}, acl)).code == 0
    async with running(tmp_path) as service, asking(service, BOB) as bob:
        assert (await bob.request(105, {"topic": "T"})).code == 17  # it may ask; there is no such topic
        assert (await bob.request(105, {"topic": "U"})).code == 16
        wiped = await bob.request(205, {"brokerName": "a"})
        assert "Cluster:NameServer" in (wiped.remark or "")
        registered = await bob.request(103, {"clusterName": "c", "brokerName": "a"})
        assert "Cluster:c" in (registered.remark or "")
        assert (await bob.request(318, {}, b"enableTopicList=false")).code == 16
    assert "bob secret" not in (tmp_path / "accounts.json").read_text()
