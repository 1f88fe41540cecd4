"""Accounts reach a replica, which enforces them; only an account of brokers can ask for them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.broker.running import SEND_FIELDS, broker_conf, running_broker
from tests.broker.test_protected import ACCESS, ALICE, INNER, ROOT, make_alice, signed

from twinlog.broker.broker import Broker
from twinlog.replication.account_exchange import (
    AccountsRefused,
    decode_answer,
    decode_java,
    encode_answer,
)
from twinlog.security.policies import Entry, Policy
from twinlog.security.users import Account
from twinlog.wire.errors import BodyError
from twinlog.wire.twinlog_codes import TwinlogCode

QUICK = {"slaveMetadataSyncInterval": 200, "slaveMetadataSyncFirstDelay": 10}


async def until_equal(master: Broker, replica: Broker) -> None:
    assert master.context is not None and replica.context is not None
    async with asyncio.timeout(20):
        while master.context.tables.accounts.rows != replica.context.tables.accounts.rows:
            await asyncio.sleep(0.02)


async def test_a_replica_takes_over_the_accounts_and_enforces_them(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path / "master", **ACCESS)) as master:
        slave = {
            **ACCESS,
            **QUICK,
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "initAuthenticationUser": "",
            "slaveReadEnable": True,
        }
        conf = broker_conf(tmp_path / "replica", **slave)
        async with running_broker(conf) as replica, signed(master, ROOT) as root:
            assert replica.replication is not None and replica.context is not None
            replica.context.master_address = master.address  # as a name server would give it
            replica.replication.sync.master_is_at(master.address)
            await make_alice(root)
            await until_equal(master, replica)
            async with signed(replica, ALICE) as alice:
                refused = await alice.request(25, {}, b"fileReservedTime=1")
                assert "Cluster:DefaultCluster" in (refused.remark or "")
                assert (await alice.request(310, dict(SEND_FIELDS), b"x")).code != 16  # a replica takes no sends
            async with signed(replica, ROOT) as there:
                on_replica = await there.request(3001, {"username": "bob"}, b'{"password":"x"}')
                assert on_replica.code == 1 and "master" in (on_replica.remark or "")
            await root.request(3003, {"username": "alice"})
            await until_equal(master, replica)
            assert "alice" not in replica.context.tables.accounts
            status = replica.replication.sync.status.kind("accounts")
            assert status.error is None or status.error == ""
        text = (tmp_path / "replica" / "config" / "accounts.json").read_text()
        assert "root" in text and "root secret" not in text


async def test_secrets_are_sealed_on_their_way_and_only_super_accounts_may_ask(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path, **ACCESS)) as master, signed(master, ROOT) as root:
        await make_alice(root)
        async with signed(master, INNER) as inner:
            answer = await inner.request(TwinlogCode.ACCOUNTS, {"held": ""})
            assert answer.body and b"alice" in answer.body
            assert b"alice secret" not in answer.body and b"root secret" not in answer.body
            names = {one.username for one in decode_answer(answer.body, "inner secret")}
            assert names == {"root", "inner", "alice"}
            again = await inner.request(TwinlogCode.ACCOUNTS, {"held": (answer.fields or {})["held"]})
            assert not again.body
        async with signed(master, ALICE) as alice:
            assert (await alice.request(TwinlogCode.ACCOUNTS, {"held": ""})).code == 16
        async with signed(master, None) as stranger:
            assert (await stranger.request(TwinlogCode.ACCOUNTS, {"held": ""})).code == 16


async def test_a_master_without_accounts_gives_none(tmp_path: Path):
    async with running_broker(broker_conf(tmp_path)) as master, signed(master, INNER) as inner:
        assert (await inner.request(TwinlogCode.ACCOUNTS, {"held": ""})).code == 1


def test_an_answer_for_another_account_or_a_changed_one_is_not_readable():
    root = Account("root", "secret", "Super")
    body = encode_answer({"root": root}, root)
    assert decode_answer(body, "secret") == [root]
    for wrong in (body, body[:-9], b"{}", b"[" * 100_000):
        with pytest.raises(BodyError):
            decode_answer(wrong, "other" if wrong is body else "secret")


def test_the_lists_of_a_java_master_become_accounts():
    users = [
        {"username": "root", "password": "r", "userType": "Super", "userStatus": "enable"},
        {"username": "alice", "password": "a", "userType": "Normal", "userStatus": "disable"},
    ]
    entry = {"resource": "Topic:T1", "actions": ["Pub"], "decision": "Allow"}
    acls = [{"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]}]
    found = decode_java(json.dumps(users).encode(), json.dumps(acls).encode())
    policy = Policy("Custom", (Entry("Topic:T1", ("Pub",), "Allow"),))
    assert found == [Account("root", "r", "Super"), Account("alice", "a", "Normal", "disable", (policy,))]


@pytest.mark.parametrize(
    "users",
    [
        None,
        b"[]",
        b'[{"username":"alice","password":"a","userType":"Normal"}]',
        b'[{"username":"root","password":"r","userType":"Super","userStatus":"disable"}]',
        b'[{"username":"root","userType":"Super"}]',
    ],
)
def test_accounts_that_would_lock_the_replica_are_not_taken_over(users):
    with pytest.raises(AccountsRefused):
        decode_java(users, None)
