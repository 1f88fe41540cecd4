"""`diagnose replica`: each situation is made for real, with a master and a replica, and its finding is seen."""

import asyncio
from dataclasses import replace

import pytest
from tests.replication.cluster import running_cluster, send_all, twins, until
from tests.replication.test_ha_tls import tls_keys
from typer.testing import CliRunner

from twinlog.cli.diagnose.app import diagnose
from twinlog.client import Admin
from twinlog.net.certificates import make_authority
from twinlog.observe.cluster.broker_groups import LagFacts, Member
from twinlog.observe.replicas.diagnose_replica import diagnose_replica
from twinlog.observe.replicas.replica_facts import BrokerFacts, ReplicaFacts, gather_replica_facts

SECRET, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def findings(cluster, broker, until_text):
    """The texts of all findings on one replica, asked again until one has `until_text`."""
    async with Admin(cluster.names) as admin, asyncio.timeout(20):
        while True:
            for facts in await gather_replica_facts(admin, broker):
                found = diagnose_replica(facts)
                texts = ["\n".join([one.what, *one.evidence, one.todo]) for one in found]
                if any(until_text in text for text in texts):
                    return texts
            await asyncio.sleep(0.05)


async def diagnosed(cluster, *words):
    return await asyncio.to_thread(CliRunner().invoke, diagnose, ["replica", *words, "-n", cluster.names])


async def test_a_pair_that_is_well_is_said_to_be(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    (text,) = await findings(cluster, None, "nothing is wrong")
    assert f"it follows {master.address}, 0 bytes behind" in text
    shown = await diagnosed(cluster, "broker-a")
    assert shown.exit_code == 0 and f"replica 1 of broker-a at {replica.address}" in shown.output
    assert (await diagnosed(cluster, "nobody")).exit_code == 1


async def test_a_log_of_another_master_is_a_diverged_log(cluster):
    await send_all(await cluster.start("replica", brokerName="elsewhere"), [b"x"])
    await cluster.stop("replica")
    await send_all(await cluster.start("master"), [b"other"] * 5)
    replica = await cluster.start("replica", "SLAVE", 1)
    await until(lambda: replica.replication.replica.status.state == "refused", "its log is another one")
    (text, *_) = await findings(cluster, replica.address, "its log is not a beginning of its master's log")
    assert "rejoin --store" in text and "refused 1 times" in text
    shown = await diagnosed(cluster, replica.address)
    assert shown.exit_code == 1 and "PROBLEM: its log is not a beginning" in shown.output


async def test_another_secret_is_found(cluster):
    await cluster.start("master", haSharedSecret=SECRET)
    replica = await cluster.start("replica", "SLAVE", 1, haSharedSecret=OTHER)
    await findings(cluster, replica.address, "master and replica do not have the same secret")


async def test_tls_on_one_side_only_is_found(cluster, tmp_path):
    keys = tls_keys(tmp_path / "tls", make_authority(), "m")
    await cluster.start("master", haTlsRequired=True, **keys)
    replica = await cluster.start("replica", "SLAVE", 1)
    texts = await findings(cluster, replica.address, "uses TLS on the HA port, the other does not")
    assert any("haTlsEnable: replica false, master true, haTlsRequired=true" in text for text in texts)


async def test_a_wrong_ha_address_is_named_beside_the_right_one(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1, haMasterAddress="127.0.0.1:1")
    right = f"127.0.0.1:{master.conf.replication.listen_port}"
    texts = await findings(cluster, replica.address, "haMasterAddress of the replica is 127.0.0.1:1")
    assert any(f"its master listens on {right}" in text for text in texts)


async def test_a_name_without_a_master_has_a_suggestion(cluster):
    await cluster.start("master", brokerName="broker-b")
    replica = await cluster.start("replica", "SLAVE", 1, brokerName="broker-bb")
    texts = await findings(cluster, replica.address, "the name servers have no master 'broker-bb'")
    assert any("is it 'broker-b'?" in text for text in texts)


async def test_a_replica_that_registers_elsewhere_is_found(cluster):
    await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1, namesrvAddr="127.0.0.1:1")
    texts = await findings(cluster, replica.address, "it is not registered with")
    assert any("its namesrvAddr is 127.0.0.1:1" in text for text in texts)


def facts(replica: BrokerFacts, master: BrokerFacts, lag: LagFacts | None = None) -> ReplicaFacts:
    return ReplicaFacts("C", "b", replica, master, lag, True, ("b",), "n:1")


def broker(number: int, runtime: dict[str, str] | None = None, **document) -> BrokerFacts:
    state = {"following": {"state": "following"}} if number else {}
    member = Member(number, f"a:{number}", "twinlog", {"nowMs": 1_000_000, **state, **document}, log_end=5)
    return BrokerFacts(member, {}, {"twinlogVersion": "1", **(runtime or {})})


def texts(found: ReplicaFacts) -> list[str]:
    return [one.what for one in diagnose_replica(found)]


def test_a_lost_master_is_one_finding_and_not_what_follows_from_it():
    failed = {kind: {"error": "cannot connect to a:0", "syncedMs": 999_000} for kind in ("topics", "groups")}
    replica = broker(1, metadata=failed, following={"state": "connecting", "reason": "cannot connect to a:0"})
    lost = replace(facts(replica, broker(0)), masters=(), master=None, ha_error="cannot connect")
    assert texts(lost) == ["the name servers have no master 'b'"]
    assert "topics, groups are not synchronised" in texts(facts(replica, broker(0)))


def test_what_takes_a_machine_to_make_is_judged_from_facts():
    assert texts(facts(broker(1), broker(0))) == ["nothing is wrong: it follows a:0"]
    assert texts(facts(broker(1, {"commitLogDiskRatio": "0.97"}), broker(0))) == ["the disk of the replica is full"]
    assert texts(facts(broker(1, nowMs=1_009_000), broker(0))) == ["the clocks of master and replica differ by 9.0 s"]
    older = {"twinlogVersion": "0.9"}
    assert texts(facts(broker(1, older), broker(0))) == ["the replica runs Twinlog 0.9, its master Twinlog 1"]
    behind = LagFacts(7_000_000, in_sync=False, counted_out=True)
    assert "it does not keep up" in texts(facts(broker(1), broker(0), behind))[0]
    assert texts(facts(broker(1), broker(0), LagFacts(9, in_sync=False)))[0] == "it catches up"
    failed = {"topics": {"error": "NO_PERMISSION", "syncedMs": 999_000}}
    assert texts(facts(broker(1, metadata=failed), broker(0))) == ["topics are not synchronised"]
    old = {"topics": {"error": "", "syncedMs": 900_000}}
    assert texts(facts(broker(1, metadata=old), broker(0))) == ["topics were last synchronised 100 s ago"]
    lost = broker(1, following={"state": "connecting", "reason": "[SSL] certificate verify failed"})
    assert "the certificate of the master is not accepted" in texts(facts(lost, broker(0)))
    silent = BrokerFacts(Member(0, "a:0", error="refused"))
    assert "its master a:0 does not answer" in texts(facts(broker(1), silent))
    gone = BrokerFacts(Member(1, "a:1", error="refused"))
    assert texts(facts(gone, broker(0))) == ["it does not answer"]
