"""Each finding of `twinlog doctor`: made on purpose, named, with what to do."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket

import pytest
from tests.cli.failover.test_wishes import found as failover_group
from tests.failover.situations import keys, without
from tests.interop.processes import free_port
from tests.replication.cluster import running_cluster, twins
from typer.testing import CliRunner

from twinlog.cli.doctor import cluster as asked
from twinlog.cli.doctor import machine
from twinlog.cli.doctor.findings import Level, exit_status, ok, report_of, warning
from twinlog.cli.main import app
from twinlog.client import ClientOptions
from twinlog.failover.records import InSync, Pause
from twinlog.observe.cluster.broker_groups import Group, LagFacts, Member
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.failover import FailoverSettings


def conf(tmp_path, text=""):
    base = f"brokerIP1=127.0.0.1\nnamesrvAddr=127.0.0.1:9876\nstorePathRootDir={tmp_path / 'store'}\n"
    return load_broker_conf(
        text=f"{base}mappedFileSizeCommitLog=1048576\nlistenPort={free_port(beside=(1, -2))}\n{text}"
    )


def only(findings, level):
    (one,) = [finding for finding in findings if finding.level is level]
    assert one.todo or level is Level.OK, "a problem says what to do"
    return one.what


def test_a_configuration_that_cannot_be_read_or_has_unknown_keys(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerRole=KING\n")
    assert "KING" in only(machine.check_configuration(file)[1], Level.ERROR)
    file.write_text("namesrvAddr=127.0.0.1:1\nnoSuchKey=1\n")
    assert "noSuchKey" in only(machine.check_configuration(file)[1], Level.WARNING)
    file.write_text("brokerName=b\n")
    assert "no namesrvAddr" in only(machine.check_configuration(file)[1], Level.WARNING)
    file.write_text("namesrvAddr=127.0.0.1:1\n")
    assert "is valid" in only(machine.check_configuration(file)[1], Level.OK)


@pytest.mark.parametrize(
    ("text", "level", "what"),
    [
        ("brokerIP1=no.such.host.invalid\n", Level.ERROR, "cannot be resolved"),
        ("brokerIP1=0.0.0.0\n", Level.ERROR, "means any address"),
        ("namesrvAddr=192.0.2.1:9876\n", Level.ERROR, "reachable from this machine only"),
        ("brokerIP1=192.0.2.77\n", Level.WARNING, "is not an address of this machine"),
        ("", Level.OK, "clients are sent to 127.0.0.1"),
    ],
)
def test_an_advertised_address_that_others_cannot_reach(tmp_path, text, level, what):
    assert what in only(machine.check_address(conf(tmp_path, text)), level)


def test_ports_that_are_taken_or_do_not_answer(tmp_path):
    given = conf(tmp_path)
    assert "are free" in only(machine.check_ports(given, is_running=False), Level.OK)
    assert "does not answer, although" in only(machine.check_ports(given, is_running=True), Level.ERROR)
    with socket.create_server(("0.0.0.0", given.replication.listen_port)):
        text = only(machine.check_ports(given, is_running=False), Level.ERROR)
    assert f"port {given.replication.listen_port} (haListenPort) is not free" in text


def test_a_disk_that_is_full_or_cannot_be_written(tmp_path, monkeypatch):
    given = conf(tmp_path)
    for used, level, what in ((95, Level.ERROR, "sends are refused"), (80, Level.WARNING, "are deleted at any hour")):
        assert all(what in one.what and one.level is level for one in machine.check_disk(given, used))
    huge = dataclasses.replace(given, store=dataclasses.replace(given.store, segment_bytes=1 << 50))
    assert all("segments need" in one.what for one in machine.check_disk(huge, 10))
    assert {one.level for one in machine.check_disk(given, 10)} == {Level.OK}
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert all("cannot be written" in one.what for one in machine.check_disk(given))


def test_a_store_that_crashed_is_broken_or_has_tails_set_aside(tmp_path):
    given = conf(tmp_path)
    assert "is empty" in only(machine.check_store(given, is_running=False), Level.OK)
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(bytes(1 << 20))
    (root / "abort").touch()
    assert "not closed cleanly" in only(machine.check_store(given, is_running=False), Level.WARNING)
    assert "in use" in only(machine.check_store(given, is_running=True), Level.OK)
    (root / "abort").unlink()
    (root / "set-aside" / "1").mkdir(parents=True)
    (root / "set-aside" / "1" / "tail-0-10").touch()
    assert "1 tails were set aside" in only(machine.check_store(given, is_running=False), Level.WARNING)
    (root / "config").mkdir()
    (root / "config" / "twinlogEpoch").write_text("{")
    assert "twinlogEpoch does not parse" in only(machine.check_store(given, is_running=False), Level.ERROR)


def group(*replicas, role="SYNC_MASTER", lag=None, **master):
    first = Member(0, "m:1", "twinlog", {"role": role, **master}, 0, 10)
    members = [first, *replicas]
    return Group("C", "b", members, {one.broker_id: lag or LagFacts(0, in_sync=True) for one in replicas})


DENIED = "m:1 refused 30906 with NO_PERMISSION (16): username cannot be null."
HEALTHY = Member(1, "r:1", "twinlog", {"following": {"state": "following"}}, 0, 10)


@pytest.mark.parametrize(
    ("shown", "level", "what"),
    [
        (Group("C", "b", [HEALTHY]), Level.ERROR, "there is no master"),
        (Group("C", "b", [Member(0, "m:1", error="timeout")]), Level.ERROR, "m:1 does not answer: timeout"),
        (group(Member(1, "r:1", error="timeout"), role="ASYNC_MASTER"), Level.ERROR, "r:1 does not answer"),
        (
            group(
                Member(1, "r:1", "twinlog", {"following": {"state": "refused", "reason": "ahead"}}), role="ASYNC_MASTER"
            ),
            Level.ERROR,
            "does not follow: ahead",
        ),
        (group(HEALTHY, role="ASYNC_MASTER", lag=LagFacts(7, in_sync=False)), Level.WARNING, "7 bytes behind"),
        (group(HEALTHY, lag=LagFacts(7, in_sync=False)), Level.ERROR, "no replica is in sync"),
        (group(role="ASYNC_MASTER"), Level.WARNING, "has no replica"),
        (group(HEALTHY, failedTasks={"X": {"failures": 2, "error": "boom"}}), Level.WARNING, "X of m:1 failed 2 times"),
        (group(HEALTHY), Level.OK, "1 replica is in sync"),
    ],
)
def test_replication_that_does_not_protect_messages(shown, level, what):
    found = [one for one in asked.judge_group(shown) if one.level is level]
    assert any(what in one.what for one in found), found


@pytest.mark.parametrize("shown", [[Member(0, "m:1", error=DENIED)], group(Member(1, "r:1", error=DENIED)).members])
def test_a_server_that_refuses_who_asks_is_not_to_be_started_again_or_replaced(shown):
    """Seen to fail: the advice for a protected master was to make a replica master."""
    found = next(one for one in asked.judge_group(Group("C", "b", shown)) if one.level is Level.ERROR)
    assert found.todo == "it runs, and refuses this account; give a super account with --access-key and --secret-key"


@pytest.mark.parametrize(("skew_ms", "level"), [(50, Level.OK), (-5_000, Level.WARNING), (3_600_000, Level.ERROR)])
def test_a_clock_that_is_wrong(skew_ms, level):
    assert asked.judge_clock("b:1", skew_ms).level is level


@pytest.mark.parametrize(
    ("shown", "level", "what"),
    [
        (keys(None), Level.ERROR, "nobody is master"),
        (keys(pause=Pause()), Level.WARNING, "paused"),
        (keys(in_sync=InSync(epoch=3, members=("a", "b"))), Level.WARNING, "c:10911 is not in sync"),
        (without(keys(), "b", "c"), Level.ERROR, "no replica could take over"),
        (keys(), Level.OK, "a:10911 is master, 2 could take over"),
    ],
)
def test_failover_that_would_not_work(shown, level, what):
    assert what in only(asked.judge_failover(failover_group(shown)), level)


@pytest.mark.parametrize(
    ("text", "level", "what"),
    [
        ("", Level.WARNING, "who can connect can read and write all topics"),
        ("adminRequestsFrom=*\n", Level.ERROR, "anybody can administrate"),
        ("bindAddress=127.0.0.1\n", Level.OK, "only this machine can connect"),
        ("authenticationEnabled=true\n", Level.OK, "must be signed"),
        (
            'brokerRole=SLAVE\nbrokerId=1\ninnerClientAuthenticationCredentials={"accessKey":"a","secretKey":"b"}\n',
            Level.WARNING,
            "serves this machine only",
        ),
    ],
)
def test_what_a_stranger_can_do(tmp_path, text, level, what):
    assert what in only(machine.check_access(conf(tmp_path, text)), level)


async def test_an_etcd_and_a_name_server_that_do_not_answer():
    address = f"127.0.0.1:{free_port()}"
    found = await asked.check_etcd(FailoverSettings(etcd=address), None, None)
    assert "no endpoint of etcd answers" in only(found, Level.ERROR)
    assert "without a majority" in only(found, Level.WARNING)
    groups, found = await asked.check_name_servers([address], ClientOptions())
    assert groups == [] and address in only(found, Level.ERROR)


async def test_a_healthy_pair_is_fine_and_a_silent_replica_is_not(tmp_path):
    async with running_cluster(tmp_path) as cluster:
        master = await cluster.start("one", "SYNC_MASTER")
        await twins(master, await cluster.start("two", "SLAVE", 1))

        async def run(*words):
            return await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "-n", cluster.names, *words])

        fine = await run()
        assert fine.exit_code == 0 and "0 warnings, 0 errors" in fine.output, fine.output
        await cluster.stop("two")
        broken = await run("--json")
        assert broken.exit_code == 1
        assert any("no replica is in sync" in one["what"] for one in json.loads(broken.stdout))


def test_the_exit_status_is_for_scripts():
    some = [ok("disk", "fine"), warning("clock", "late", "mend it")]
    assert (exit_status(some, strict=False), exit_status(some, strict=True), exit_status([], strict=True)) == (0, 1, 0)
    assert report_of(some).lines == [
        "OK      disk: fine",
        "WARNING clock: late",
        "        -> mend it",
        "1 checks are fine, 1 warnings, 0 errors",
    ]
