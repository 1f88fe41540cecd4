"""`twinlog replication` and `twinlog admin verifyReplica` against brokers that run beside them."""

import asyncio
import json

import pytest
from tests.broker.running import broker_conf
from tests.replication.cluster import end_of, running_cluster, send_all, status, twins, until
from typer.testing import CliRunner

from twinlog.cli.admin.app import run as run_admin
from twinlog.cli.replication.app import replication


@pytest.fixture
async def cluster(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def run(*words):
    return await asyncio.to_thread(CliRunner().invoke, replication, [str(word) for word in words])


BODIES = [b"message %d" % number for number in range(50)]


async def test_status_shows_each_replica_and_its_metadata(cluster):
    master = await cluster.start("master", "SYNC_MASTER")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    await send_all(master, BODIES)
    await twins(master, replica)
    shown = (await run("status", "-n", cluster.names)).output
    assert f"DefaultCluster/broker-a: master {master.address} (twinlog, SYNC_MASTER)" in shown
    assert "following" in shown and "replica 1: metadata: " in shown and "offsets" not in shown
    assert "metadata of replica 1\n" in (more := (await run("status", "-n", cluster.names, "--metadata")).output)
    assert "offsets" in more
    (group,) = json.loads((await run("status", "-n", cluster.names, "--json")).output)
    by_id = {broker["brokerId"]: broker for broker in group["brokers"]}
    assert by_id[1]["lag"]["bytes"] == 0 and by_id[1]["lag"]["in_sync"] is True
    assert by_id[1]["logEnd"] == end_of(master)
    alone = json.loads((await run("status", "-n", "127.0.0.1:1", "-b", replica.address, "--json")).output)
    assert [broker["brokerId"] for broker in alone[0]["brokers"]] == [0, 1], "it knows its master"


async def test_lag_is_reported_in_bytes_messages_and_seconds(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    held = end_of(master)
    replica.replication.replica._receiver._loop.remove_reader(replica.replication.replica._receiver._socket.fileno())
    await send_all(master, BODIES)
    (view,) = (await status(master))["replicas"]
    assert view["lagBytes"] == end_of(master) - held > 0
    assert view["lagMessages"] == 50 and view["lagMs"] >= 0
    shown = (await run("status", "-n", cluster.names)).output
    assert str(end_of(master) - held) in shown


async def test_a_role_is_changed_from_the_command_line(cluster):
    broker = await cluster.start("broker")
    words = ["change-role", "-b", broker.address, "--role", "SLAVE", "--force", "-n", cluster.names]
    result = await run(*words)
    assert result.exit_code == 0 and "1. take the new role: sends" in result.output
    again = await run(*words)
    assert f"nothing to do: {broker.address} is SLAVE" in again.output
    assert (await status(broker))["role"] == "SLAVE"
    result = await run("change-role", "-b", broker.address, "--role", "NONE", "-n", cluster.names)
    assert result.exit_code == 1 and "is not a role" in result.output
    words = ["updateBrokerConfig", "-b", broker.address, "-k", "brokerRole", "-v", "SYNC_MASTER", "-n", cluster.names]
    assert await asyncio.to_thread(run_admin, words) == 0
    assert (await status(broker))["role"] == "SYNC_MASTER"


async def test_the_lag_of_a_refused_replica_is_unknown_and_the_next_step_is_a_whole_command(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    await cluster.stop("replica")
    await send_all(await cluster.start("replica", brokerName="elsewhere"), BODIES[:1])
    await cluster.stop("replica")
    await send_all(master, BODIES)
    replica = await cluster.start("replica", "SLAVE", 1)
    await until(lambda: replica.replication.replica.status.state == "refused", "its log is another one")
    (group,) = json.loads((await run("status", "-n", cluster.names, "--json")).output)
    (shown,) = [broker for broker in group["brokers"] if broker["brokerId"] == 1]
    assert shown["lag"]["bytes"] is None and shown["lag"]["in_sync"] is False
    assert "unknown" in (await run("status", "-n", cluster.names)).output
    reason = replica.replication.replica.status.reason
    assert f"rejoin --store {cluster.home / 'replica'} --cut 0`" in reason


async def test_rejoin_prints_what_it_does_and_asks_first(cluster):
    broker = await cluster.start("broker")
    await send_all(broker, BODIES)
    end = end_of(broker)
    await cluster.stop("broker")
    store, size = cluster.home / "broker", None
    conf = cluster.home / "broker.conf"
    keys = broker_conf(store).properties()
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items() if key.startswith("max")))
    refused = await run("rejoin", "--store", store, "--cut", end - 1, "-c", conf)
    assert refused.exit_code == 1 and "use --cut" in refused.output
    size = end - int(refused.output.partition("use --cut ")[2].split(" ")[0])
    refused = await run("rejoin", "--store", store, "--cut", end - size, "-c", conf)
    assert refused.exit_code == 1 and "confirm with --yes" in refused.output
    done = await run("rejoin", "--store", store, "--cut", end - size, "--yes", "-c", conf)
    assert done.exit_code == 0, done.output
    assert f"1 records, {size} bytes from {end - size} to {end}" in done.output and "set-aside" in done.output
    again = await run("rejoin", "--store", store, "--cut", end - size, "--yes", "-c", conf)
    assert again.exit_code == 0 and "nothing is cut" in again.output


async def test_verify_replica_proves_equality_and_counts_as_no_replica(cluster, capsys):
    master = await cluster.start("master", "SYNC_MASTER")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    await send_all(master, BODIES)
    await twins(master, replica)
    words = ["verifyReplica", "-b", master.address, "-r", replica.address, "-n", cluster.names]
    assert await asyncio.to_thread(run_admin, words) == 0
    assert f"equal: {end_of(replica)} bytes from 0 to {end_of(replica)}" in capsys.readouterr().out
    assert len((await status(master))["replicas"]) == 1
    swapped = ["verifyReplica", "-b", replica.address, "-r", master.address, "-n", cluster.names]
    assert await asyncio.to_thread(run_admin, swapped) == 0
    store = replica.context.store
    segment = store.commit_log.segments[0]
    at = end_of(replica) - 100
    segment.map[at] ^= 1
    assert await asyncio.to_thread(run_admin, words) == 1
    assert f"differs from {master.address} at byte {at}" in capsys.readouterr().err
    segment.map[at] ^= 1


async def test_a_watch_that_sees_nothing_at_first_ends_with_the_reason(cluster):
    ended = await run("status", "-n", "127.0.0.1:1", "--watch")
    assert ended.exit_code == 1 and "127.0.0.1:1" in ended.output
