"""`twinlog replication` and `twinlog admin verifyReplica` against brokers that run beside them."""

import asyncio
import json

import pytest
from tests.broker.running import broker_conf
from tests.replication.cluster import end_of, running_cluster, send_all, status, twins
from typer.testing import CliRunner

from twinlog.cli import replication as cli
from twinlog.cli.admin.app import run as run_admin
from twinlog.cli.replication import replication, watch_lines
from twinlog.cli.replication_facts import Group, LagFacts, Member
from twinlog.cli.replication_report import MIB, CatchUp, Progress, report_of
from twinlog.client import NetError


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
    assert "following" in shown and "metadata of replica 1" in shown and "offsets" in shown
    (group,) = json.loads((await run("status", "-n", cluster.names, "--json")).output)
    by_id = {broker["brokerId"]: broker for broker in group["brokers"]}
    assert by_id[1]["lag"]["bytes"] == 0 and by_id[1]["lag"]["in_sync"] is True
    assert by_id[1]["logEnd"] == end_of(master)
    alone = json.loads((await run("status", "-n", "127.0.0.1:1", "-b", replica.address, "--json")).output)
    assert [broker["brokerId"] for broker in alone[0]["brokers"]] == [0, 1], "it knows its master"


async def test_lag_is_told_in_bytes_messages_and_seconds(cluster):
    master = await cluster.start("master")
    replica = await cluster.start("replica", "SLAVE", 1)
    await twins(master, replica)
    held = end_of(master)
    replica.replication.replica._session._loop.remove_reader(replica.replication.replica._session._socket.fileno())
    await send_all(master, BODIES)
    (view,) = (await status(master))["replicas"]
    assert view["lagBytes"] == end_of(master) - held > 0
    assert view["lagMessages"] == 50 and view["lagMs"] >= 0
    shown = (await run("status", "-n", cluster.names)).output
    assert str(end_of(master) - held) in shown


async def test_a_role_is_changed_from_the_command_line(cluster):
    broker = await cluster.start("broker")
    result = await run("change-role", "-b", broker.address, "--role", "SLAVE", "-n", cluster.names)
    assert result.exit_code == 0 and "REFUSE_SENDS" in result.output
    assert (await status(broker))["role"] == "SLAVE"
    result = await run("change-role", "-b", broker.address, "--role", "NONE", "-n", cluster.names)
    assert result.exit_code == 1 and "is no role" in result.output
    words = ["updateBrokerConfig", "-b", broker.address, "-k", "brokerRole", "-v", "SYNC_MASTER", "-n", cluster.names]
    assert await asyncio.to_thread(run_admin, words) == 0
    assert (await status(broker))["role"] == "SYNC_MASTER"


async def test_rejoin_says_what_it_does_and_asks_first(cluster):
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
    assert refused.exit_code == 1 and "give --yes" in refused.output
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


def groups(end, behind, master_end=100 * MIB):
    members = [Member(0, "m", "twinlog", log_end=master_end), Member(1, "r", "twinlog", log_end=end)]
    return [Group("C", "b", members, {1: LagFacts(behind, 7, False, 1500, False, 0)})]


def test_progress_has_a_rate_and_a_time_left_while_a_replica_catches_up():
    catch_up = CatchUp()
    assert catch_up.look(groups(20 * MIB, 80 * MIB), 0.0) == [Progress("b/1", 0, 80 * MIB, 0.0, None)]
    (progress,) = catch_up.look(groups(60 * MIB, 40 * MIB), 2.0)
    assert progress == Progress("b/1", 40 * MIB, 80 * MIB, 20.0 * MIB, 2.0)
    assert str(progress) == "50 % of 80.0 MiB, 20.0 MiB/s, 2 s left"
    assert catch_up.look(groups(100 * MIB, 0), 3.0) == []
    assert "not coming nearer" in str(Progress("b/1", 0, MIB, 0.0, None))


def test_a_pipe_gets_one_line_a_replica():
    (line,) = watch_lines(groups(20 * MIB, 80 * MIB), [Progress("b/1", 0, 80 * MIB, 0.0, None)])
    assert "b/1" in line and "~7 messages, 1.5 s, not in sync; catching up: 0 % of 80.0 MiB" in line
    assert "no replicas" in watch_lines([], [])[0]


@pytest.mark.parametrize("as_json", [False, True])
async def test_who_watches_sees_servers_go_and_come_back(monkeypatch, capsys, as_json):
    looks = iter([groups(0, 5), NetError("cannot connect to n:1"), groups(5, 0), KeyboardInterrupt()])

    async def look(*_):
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(cli, "gather_groups", look)
    with pytest.raises(KeyboardInterrupt):
        await cli._watch(None, None, None, 0.0, as_json)
    first, failure, last = capsys.readouterr().out.splitlines()
    assert "b" in first and "b" in last
    assert failure == '{"error": "cannot connect to n:1"}' if as_json else "n:1; looking again" in failure


async def test_a_watch_that_sees_nothing_at_first_ends_with_the_reason(cluster):
    ended = await run("status", "-n", "127.0.0.1:1", "--watch")
    assert ended.exit_code == 1 and "127.0.0.1:1" in ended.output


def test_a_pipe_hears_why_a_replica_does_not_follow():
    (group,) = groups(20 * MIB, 80 * MIB)
    group.replicas[0].document = {"following": {"state": "refused", "reason": "the logs differ"}}
    assert "b/1 refused (the logs differ), lag" in watch_lines([group], [])[0]


def test_brokers_that_do_not_answer_are_shown_as_such():
    silent = [Group("C", "b", [Member(0, "m", error="refused"), Member(1, "r", error="refused too")])]
    report = report_of(silent)
    assert "does not answer: refused" in report.tables[0].title
    assert report.tables[0].rows[0][3] == "no answer"
    assert report_of([]).lines == ["no brokers are registered"]
