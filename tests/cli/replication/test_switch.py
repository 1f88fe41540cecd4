"""`twinlog replication switch`: who may take over, and what is said when a step fails."""

import asyncio
import json

import pytest
from tests.broker.replication.test_role_change import bodies
from tests.cli.replication.test_app import run
from tests.replication.cluster import read_all, running_cluster, send_all, status, twins, until

from twinlog.client import BrokerRefused
from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member
from twinlog.observe.replicas.planned_switch import MIB, SwitchFailed, SwitchRefused, carry_out, plan_switch


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def test_one_command_switches_a_pair_under_sends_and_nothing_acknowledged_is_lost(cluster):
    one = await cluster.start("one", "SYNC_MASTER")
    two = await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    acknowledged: list[bytes] = []

    async def keep_sending(broker):
        number = 0
        while got := await send_all(broker, [b"%s %d-%d" % (broker.address.encode(), number, n) for n in range(10)]):
            acknowledged.extend(got)
            number += 1

    sending = asyncio.create_task(keep_sending(one))
    while len(acknowledged) < 50:
        await asyncio.sleep(0.01)
    done = await run("switch", "-n", cluster.names)
    await sending
    assert done.exit_code == 0, done.output
    assert f"{two.address} is the master of broker-a now, epoch 1; {one.address} is its replica 1." in done.output
    assert "both logs are equal from 0 to" in done.output
    assert [(await status(each))["brokerId"] for each in (one, two)] == [1, 0], "the ids are swapped"
    assert await send_all(two, bodies("after")) == bodies("after")
    await twins(two, one)
    assert set(acknowledged) <= {message.body for message in await read_all(two)}
    back = await run("switch", "broker-a", "--to", one.address, "-n", cluster.names, "--json")
    assert json.loads(back.stdout)["master"] == one.address


async def test_a_replica_that_is_behind_gets_the_rest_of_the_log_before_it_takes_over(cluster):
    """Seen to fail when the step FEED_REPLICAS does nothing: the switch is undone, and says so."""
    one, two = await cluster.start("one"), await cluster.start("two", "SLAVE", 1)
    await twins(one, two)
    (link,) = one.replication.master._connections.values()
    pump, link.pump = link.pump, lambda: None
    assert await send_all(one, bodies("held back")) == bodies("held back")

    async def let_go():
        await until(lambda: not one.context.is_master, "it refuses sends")
        await asyncio.sleep(0.3)  # without the step, the link is closed by now
        link.pump = pump
        pump()

    letting_go = asyncio.create_task(let_go())
    done = await run("switch", "-n", cluster.names)
    await letting_go
    assert done.exit_code == 0, done.output
    assert {message.body for message in await read_all(two)} == set(bodies("held back"))


async def test_a_lone_master_does_not_step_down_unless_it_is_forced(cluster):
    """Seen to fail without `_check_successor`."""
    one = await cluster.start("one")
    words = ["change-role", "-b", one.address, "--role", "SLAVE", "-n", cluster.names]
    refused = await run(*words)
    assert refused.exit_code == 1 and "no replica is connected" in refused.output and "--force" in refused.output
    assert (await status(one))["role"] == "ASYNC_MASTER"
    assert (await run("switch", "-n", cluster.names)).exit_code == 1
    done = await run(*words, "--force")
    assert done.exit_code == 0 and "is replica 1 of broker-a now (SLAVE)" in done.output
    assert "REFUSE_SENDS" not in done.output and "sends, delayed delivery and transaction checks end" in done.output


def group(state="following", lag=None, **more):
    documents = [{"role": "SYNC_MASTER"}, {"role": "SLAVE", "instance": "i", "following": {"state": state}, **more}]
    members = [Member(n, f"b{n}:1", "twinlog", document, 0, 100) for n, document in enumerate(documents)]
    return Group("C", "b", members, {1: lag or LagFacts(10, in_sync=True)})


@pytest.mark.parametrize(
    ("groups", "name", "to", "why"),
    [
        ([], None, None, "no brokers are registered"),
        ([group(), group()], None, None, "name one of them"),
        ([group()], "c", None, "no broker has the name c; there are: b"),
        ([group()], "b", "b9:1", "b9:1 is not a replica of b; its replicas are: b1:1"),
        ([Group("C", "b", group().members[:1])], None, None, "has no replica"),
        ([Group("C", "b", group().members[1:])], None, None, "has no master that answers"),
        ([Group("C", "b", [*group().members, Member(2, "b2:1")])], None, None, "choose with --to: b1:1, b2:1"),
        ([group("refused")], None, None, "does not follow its master: refused"),
        ([group(lag=LagFacts(10, in_sync=False))], None, None, "is not in sync"),
        ([group(lag=LagFacts(65 * MIB, in_sync=True))], None, None, "65 MiB behind"),
        ([group(failover=True)], None, None, "twinlog failover switchover b"),
        ([Group("C", "b", group(failover=True).members[1:])], None, None, "twinlog failover switchover b"),
        ([Group("C", "b", [group().members[0], Member(1, "r:1", error="timeout")])], None, None, "cannot take over"),
        ([Group("C", "b", [group().members[0], Member(1, "r:1", "java")])], None, None, "only Twinlog brokers"),
    ],
)
def test_a_switch_that_is_ambiguous_or_would_lose_messages_is_refused(groups, name, to, why):
    with pytest.raises(SwitchRefused, match=why):
        plan_switch(groups, name, to)


class Brokers:
    """Two brokers that fail where the test wants it; `b0:1` is master."""

    def __init__(self, failures, ends=(100, 100)):
        self.failures = failures  # (address, role): the error
        self.roles, self.ends = {"b0:1": "SYNC_MASTER", "b1:1": "SLAVE"}, dict(zip(("b0:1", "b1:1"), ends, strict=True))

    async def change_role(self, address, role, broker_id=None, **_):
        if (address, role) in self.failures:
            raise BrokerRefused(1, 1, self.failures[address, role], address)
        self.roles[address] = role

    async def replication_status(self, address):
        end, role = self.ends[address], self.roles[address]
        return {"role": role, "logStart": 0, "logEnd": end, "epoch": 1, "following": {"state": "following"}}

    async def log_digest(self, address, begin, end):
        return self.failures.get(address, "same")


@pytest.mark.parametrize(
    ("brokers", "says", "masters"),
    [
        (Brokers({("b0:1", "SLAVE"): "busy"}), "`step down`: busy. Nothing has changed: b0:1 is master", ["b0:1"]),
        (Brokers({}, (100, 90)), "b1:1 ends at 90, 10 bytes before b0:1. b0:1 is master again", ["b0:1"]),
        (Brokers({("b1:1", "SYNC_MASTER"): "disk"}), "`take over`: disk. b0:1 is master again, as before", ["b0:1"]),
        (
            Brokers({("b1:1", "SYNC_MASTER"): "disk", ("b0:1", "SYNC_MASTER"): "gone"}),
            "has NO MASTER now.*Type: twinlog replication change-role -b b0:1 --role SYNC_MASTER -n 'ns:1'",
            [],
        ),
        (Brokers({"b0:1": "other"}), "b1:1 is the master of b now, but its log differs", ["b1:1"]),
    ],
)
async def test_a_failed_step_says_who_is_master_and_what_to_type(brokers, says, masters):
    with pytest.raises(SwitchFailed, match=says):
        await carry_out(brokers, plan_switch([group()], None, None), "ns:1", lambda line: None)
    assert [address for address, role in brokers.roles.items() if role != "SLAVE"] == masters
