"""A broker with accounts: strangers get nothing, accounts get what their policies allow, and a restart keeps both."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.running import SEND_FIELDS, broker_conf, running_broker

from twinlog.broker.broker import Broker
from twinlog.client.signing import Credentials, sign
from twinlog.net.connection import Connection, ConnectionOptions
from twinlog.net.pool import connect
from twinlog.security.errors import AccountsBroken
from twinlog.wire.codes import RequestCode
from twinlog.wire.twinlog_codes import TwinlogCode

ACCESS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"root secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner secret"}',
}
ROOT, INNER = Credentials("root", "root secret"), Credentials("inner", "inner secret")
TOPIC = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
ALICE = Credentials("alice", "alice secret")


@contextlib.asynccontextmanager
async def signed(broker: Broker, credentials: Credentials | None) -> AsyncIterator[Connection]:
    before = None if credentials is None else lambda command: sign(command, credentials)
    address = f"127.0.0.1:{broker.conf.broker.listen_port}"
    connection = await connect(address, ConnectionOptions(before_request=before))
    try:
        yield connection
    finally:
        connection.close()


async def make_alice(connection: Connection) -> None:
    body = json.dumps({"password": "alice secret", "userType": "Normal"}).encode()
    assert (await connection.request(3001, {"username": "alice"}, body)).code == 0
    entries = [{"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}]
    acl = json.dumps({"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": entries}]}).encode()
    assert (await connection.request(3006, {"subject": "User:alice"}, acl)).code == 0


async def test_a_stranger_gets_nothing_from_any_request(tmp_path: Path):
    """Seen to fail: without `protected`, all but a few codes are answered."""
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as broker, signed(broker, None) as stranger:
        for code in (*RequestCode, *TwinlogCode):
            if code == TwinlogCode.METADATA_CHANGED:
                continue
            answer = await stranger.request(code, dict(SEND_FIELDS), b"body")
            assert answer.code in (16, 3), code
            assert not answer.body and not answer.fields
        assert broker.context is not None
        assert broker.context.store.log_end == 0
        assert "T" not in broker.context.topics


async def test_an_account_may_do_what_its_policy_allows_and_it_survives_a_restart(tmp_path: Path):
    conf = broker_conf(tmp_path, **ACCESS)
    async with running_broker(conf) as broker:
        async with signed(broker, ROOT) as root:
            assert (await root.request(17, TOPIC)).code == 0
            await make_alice(root)
        async with signed(broker, ALICE) as alice:
            assert (await alice.request(310, dict(SEND_FIELDS), b"body")).code == 0
            refused = await alice.request(310, {**SEND_FIELDS, "b": "U"}, b"body")
            assert (refused.code, refused.remark) == (
                16,
                "User:alice has no permission to access Topic:U from 127.0.0.1, no matched policies.",
            )
            assert (await alice.request(25, {}, b"fileReservedTime=1")).code == 16
    async with running_broker(conf) as broker:
        async with signed(broker, ALICE) as alice:
            assert (await alice.request(310, dict(SEND_FIELDS), b"body")).code == 0
        async with signed(broker, Credentials("alice", "wrong")) as thief:
            assert (await thief.request(310, dict(SEND_FIELDS), b"body")).remark == "check signature failed."
        async with signed(broker, INNER) as inner:
            assert (await inner.request(TwinlogCode.REPLICATION_STATUS)).code == 0


async def test_a_change_counts_for_the_next_request(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as broker, signed(broker, ROOT) as root:
        await make_alice(root)
        async with signed(broker, ALICE) as alice:
            assert (await alice.request(310, dict(SEND_FIELDS), b"body")).code == 0
            await root.request(3002, {"username": "alice"}, b'{"userStatus":"disable"}')
            assert (await alice.request(310, dict(SEND_FIELDS), b"body")).remark == "User:alice is disabled."


async def test_settings_that_are_shown_have_no_account_in_them(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as broker, signed(broker, ROOT) as root:
        shown = (await root.request(26)).body or b""
        assert b"authenticationEnabled=true" in shown
        assert b"secret" not in shown


async def test_a_broken_file_of_accounts_stops_the_start(tmp_path: Path):
    conf = broker_conf(tmp_path, **ACCESS)
    async with running_broker(conf):
        pass
    (tmp_path / "config" / "accounts.json").write_text("{}")
    with pytest.raises(AccountsBroken):
        async with running_broker(conf):
            pass


async def test_a_message_by_its_id_needs_the_topic_that_it_is_in(tmp_path: Path):
    """Java believes the topic that a request names. Seen to fail: without the comparison in `_view`."""
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as broker, signed(broker, ROOT) as root:
        assert (await root.request(310, dict(SEND_FIELDS), b"body")).code == 0
        assert (await root.request(33, {"offset": "0", "topic": "T"})).code == 0
        assert (await root.request(33, {"offset": "0"})).code == 0
        assert (await root.request(33, {"offset": "0", "topic": "Other"})).code == 1
