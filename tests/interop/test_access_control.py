"""Accounts and policies with real clients and mqadmin, compared with Java 5.5.0 and 4.9.7; replicas of both kinds."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.access_probe import Probe, Side, steady
from tests.interop.java_rocketmq import Broker, JavaRocketmq
from tests.interop.replica_pair import same_config, same_logs, until
from tests.interop.test_go_client import round_trip_program
from tests.interop.test_protected_master import PROTECTED
from tests.interop.twinlog_servers import Twinlog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]

ROOT = ("twinlogkey", "12345678")
ALICE = ("alice", "alicesecret")
SHARED = {"brokerName": "guarded", "mappedFileSizeCommitLog": str(1 << 20)}


PLAIN_ROOT = ("plainadmin", "12345678")
PLAIN_USER = ("plainuser", "plainsecret")
PLAIN_FILE = """accounts:
- accessKey: plainadmin
  secretKey: '12345678'
  admin: true
- accessKey: plainuser
  secretKey: plainsecret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - T1=PUB|SUB
  - PreDenied=DENY
  - PreA=PUB
  groupPerms:
  - G1=SUB
"""
VERSION = {"twinlog": "5.5.0", "java": "5.5.0", "plain-twinlog": "4.9.7", "plain-java": "4.9.7"}


@dataclass
class Servers:
    """All of this module; they start at the same time."""

    sides: dict[str, Side]
    replica: Future[Broker]  # Java's, of our protected master; it takes over metadata only 60 s after its start


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    home = tmp_path_factory.mktemp("access")

    def start(name: str) -> Side:
        file = home / name / "conf" / "plain_acl.yml"
        file.parent.mkdir(parents=True)
        file.write_text(PLAIN_FILE)
        conf = {**SHARED, **PROTECTED[VERSION[name]]}
        if name.endswith("twinlog"):
            made, conf = Twinlog(), conf | {"rocketmqHome": str(home / name), "haReplicasFrom": "127.0.0.1"}
        else:
            made = JavaRocketmq(VERSION[name])
        names = stack.enter_context(Twinlog().name_server(home / f"{name}-names"))
        return Side(names, stack.enter_context(made.broker(home / name, names.address, **conf)))

    def start_replica() -> Broker:
        slave = {**SHARED, **PROTECTED["5.5.0"], "brokerRole": "SLAVE", "brokerId": "2"}
        names = starting["twinlog"].result().names.address
        return stack.enter_context(JavaRocketmq("5.5.0").broker(home / "replica", names, **slave))

    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        starting = {name: pool.submit(start, name) for name in VERSION}
        replica = pool.submit(start_replica)
        stack.callback(wait, [*starting.values(), replica])
        yield Servers({name: found.result() for name, found in starting.items()}, replica)


@pytest.fixture(scope="module")
def sides(servers: Servers) -> dict[str, Side]:
    return servers.sides


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory, sides) -> Iterator[dict[str, Probe]]:
    home = tmp_path_factory.mktemp("probes")
    made = {version: Probe(version, home / version) for version in ("5.5.0", "4.9.7")}
    root = {"5.5.0": ROOT, "4.9.7": PLAIN_ROOT}
    for name, version in VERSION.items():
        for topic in ("T1", "PreA", "PreDenied", "T3"):
            words = f"updateTopic -b {{broker}} -t {topic} -r 1 -w 1".split()
            assert "success" in made[version].ask(sides[name], root[version], "admin", *words)
    yield made
    for probe in made.values():
        probe.close()


COMMANDS = [
    "createUser -b {broker} -u alice -p alicesecret -t Normal",
    "createUser -b {broker} -u alice -p other",
    "createUser -b {broker} -u king -p kingsecret -t Super",
    "getUser -b {broker} -u alice",
    "getUser -b {broker} -u nobody",
    "listUser -b {broker}",
    "listUser -b {broker} -f ali",
    "updateUser -b {broker} -u alice -s disable",
    "getUser -b {broker} -u alice",
    "updateUser -b {broker} -u alice -s enable",
    "updateUser -b {broker} -u alice -p alicesecret",
    "updateUser -b {broker} -u alice -t Normal",
    "updateUser -b {broker} -u nobody -p x",
    "getAcl -b {broker} -s User:alice",
    "createAcl -b {broker} -s User:alice -r Topic:T1,Topic:Pre* -a Pub,Sub -d Allow",
    "createAcl -b {broker} -s User:alice -r Group:G1 -a Sub -d Allow -i 127.0.0.1,10.0.0.0/8",
    "createAcl -b {broker} -s User:alice -r Topic:PreDenied -a Pub,Sub -d Deny",
    "createAcl -b {broker} -s User:nobody -r Topic:T1 -a Pub -d Allow",
    "createAcl -b {broker} -s User:alice -r Planet:T1 -a Pub -d Allow",
    "createAcl -b {broker} -s User:alice -r Topic:T1 -a Fly -d Allow",
    "createAcl -b {broker} -s User:alice -r Topic:T1 -a Pub -d Maybe",
    "createAcl -b {broker} -s User:alice -r Topic:T1 -a Pub -d Allow -i nowhere",
    "getAcl -b {broker} -s User:alice",
    "getAcl -b {broker} -s User:nobody",
    "listAcl -b {broker}",
    "listAcl -b {broker} -s ali -r Group",
    "updateAcl -b {broker} -s User:alice -r Topic:T2 -a Sub -d Allow",
    "deleteAcl -b {broker} -s User:alice -r Topic:T2",
    "deleteAcl -b {broker} -s User:king",
    "deleteUser -b {broker} -u king",
    "deleteUser -b {broker} -u nobody",
    "copyAcl -f {broker} -t {broker} -s User:alice",
    "listAcl -b {broker} -s User:alice",
]


@pytest.fixture(scope="module")
def managed(sides, probes) -> dict[str, list[tuple[str, list[str]]]]:
    """What mqadmin printed on each side, command by command."""
    printed: dict[str, list[tuple[str, list[str]]]] = {}
    for name in ("twinlog", "java"):
        side = sides[name]
        outputs = [probes["5.5.0"].ask(side, ROOT, "admin", *command.split()) for command in COMMANDS]
        assert ("alicesecret" in "".join(outputs)) == (name == "java")  # only Java gives a password away
        printed[name] = [(command, steady(text, side)) for command, text in zip(COMMANDS, outputs, strict=True)]
    return printed


def test_mqadmin_prints_the_same_for_users_and_policies_but_never_a_password(managed):
    different = [
        (command, ours, theirs)
        for (command, ours), (_, theirs) in zip(managed["twinlog"], managed["java"], strict=True)
        if ours != theirs
    ]
    assert different == []


NO = "User:alice has no permission to access {} from 127.0.0.1, {}"
CASES = [
    (ROOT, ("send", "T3", "guarded"), "SEND_OK"),
    (ALICE, ("send", "T1", "guarded"), "SEND_OK"),
    (ALICE, ("send", "PreA", "guarded"), "SEND_OK"),
    (ALICE, ("pull", "T1", "G1", "guarded"), "FOUND"),
    (("", ""), ("send", "T1", "guarded"), "username cannot be null."),
    (("alice", "wrongsecret"), ("send", "T1", "guarded"), "check signature failed."),
    (("stranger", "12345678"), ("send", "T1", "guarded"), "User:stranger is not found."),
    (ALICE, ("send", "T3", "guarded"), NO.format("Topic:T3", "no matched policies.")),
    (ALICE, ("send", "PreDenied", "guarded"), NO.format("Topic:PreDenied", "the decision is deny.")),
    (ALICE, ("pull", "T3", "G1", "guarded"), NO.format("Topic:T3", "no matched policies.")),
    (ALICE, ("pull", "T1", "G2", "guarded"), NO.format("Group:G2", "no matched policies.")),
    (
        ALICE,
        ("admin", *"updateTopic -b {broker} -t T1 -r 1 -w 1".split()),
        NO.format("Topic:T1", "no matched policies."),
    ),
    (
        ALICE,
        ("admin", *"createUser -b {broker} -u mallory -p mallory -t Normal".split()),
        NO.format("Cluster:DefaultCluster", "no matched policies."),
    ),
]


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_java_clients_get_what_their_account_may_have_and_the_remarks_of_java(version, sides, probes, managed):
    for account, words, wanted in CASES:
        if version == "4.9.7" and "createUser" in words:
            continue  # its mqadmin has no such command
        for name in ("twinlog", "java") if version == "5.5.0" else ("twinlog",):
            saw = probes[version].ask(sides[name], account, *words)
            assert wanted in saw, (name, account, words)


def test_a_disabled_user_is_refused_and_a_new_secret_counts_at_once(sides, probes, managed):
    side, probe = sides["twinlog"], probes["5.5.0"]
    probe.ask(side, ROOT, "admin", *"updateUser -b {broker} -u alice -s disable".split())
    assert "User:alice is disabled." in probe.ask(side, ALICE, "send", "T1", "guarded")
    probe.ask(side, ROOT, "admin", *"updateUser -b {broker} -u alice -s enable".split())
    probe.ask(side, ROOT, "admin", *"updateUser -b {broker} -u alice -p newsecret".split())
    assert "check signature failed." in probe.ask(side, ALICE, "send", "T1", "guarded")
    assert probe.ask(side, ("alice", "newsecret"), "send", "T1", "guarded") == "SEND_OK"
    probe.ask(side, ROOT, "admin", *"updateUser -b {broker} -u alice -p alicesecret".split())


DENIED = "AclException: No default permission for {}"
PLAIN_CASES = [
    (PLAIN_ROOT, ("send", "T3", "guarded"), "SEND_OK"),
    (PLAIN_USER, ("send", "T1", "guarded"), "SEND_OK"),
    (PLAIN_USER, ("send", "PreA", "guarded"), "SEND_OK"),
    (PLAIN_USER, ("pull", "T1", "G1", "guarded"), "FOUND"),
    (("", ""), ("send", "T1", "guarded"), "AclException: No accessKey is configured"),
    (("", ""), ("pull", "T1", "G1", "guarded"), "AclException: No accessKey is configured"),
    (("plainuser", "wrongsecret"), ("send", "T1", "guarded"), "Check signature failed for accessKey=plainuser"),
    (("plainuser", "wrongsecret"), ("pull", "T1", "G1", "guarded"), "Check signature failed for accessKey=plainuser"),
    (("stranger", "12345678"), ("send", "T1", "guarded"), "AclException: No acl config for stranger"),
    (PLAIN_USER, ("send", "T3", "guarded"), DENIED.format("topic:T3")),
    (PLAIN_USER, ("send", "PreDenied", "guarded"), DENIED.format("topic:PreDenied")),
    (PLAIN_USER, ("pull", "T3", "G1", "guarded"), DENIED.format("topic:T3")),
    (PLAIN_USER, ("pull", "PreA", "G1", "guarded"), DENIED.format("topic:PreA")),
    (PLAIN_USER, ("pull", "T1", "G2", "guarded"), DENIED.format("group:G2")),
    (PLAIN_USER, ("admin", *"updateTopic -b {broker} -t T1 -r 1 -w 1".split()), "Need admin permission"),
    (PLAIN_USER, ("admin", *"updateSubGroup -b {broker} -g G1".split()), "Need admin permission"),
    (PLAIN_USER, ("admin", *"updateBrokerConfig -b {broker} -k fileReservedTime -v 71".split()), "Need admin"),
]


def test_plain_acl_yml_gives_clients_of_4_9_the_answers_of_a_4_9_broker(sides, probes):
    for account, words, wanted in PLAIN_CASES:
        ours, theirs = (
            steady(probes["4.9.7"].ask(sides[name], account, *words), sides[name])
            for name in ("plain-twinlog", "plain-java")
        )
        assert ours == theirs and wanted in "".join(ours), (account, words)


def go_round_trip(side: Side, home: Path, topic: str, *account: str) -> subprocess.CompletedProcess[str]:
    command = [str(round_trip_program()), side.names.address, side.broker.address, topic, "G_go", *account]
    environment = {"HOME": str(home), "ROCKETMQ_GO_LOG_LEVEL": "error"}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def test_a_go_client_with_credentials_sends_and_consumes_what_its_account_may(sides, probes, tmp_path: Path):
    side = sides["twinlog"]
    for command in (
        "createUser -b {broker} -u gopher -p gophersecret -t Normal",
        "createAcl -b {broker} -s User:gopher -r Topic:T_go* -a Pub,Sub -d Allow",
        "createAcl -b {broker} -s User:gopher -r Group:G_go* -a Sub -d Allow",
        "updateTopic -b {broker} -t T_go -r 4 -w 4",
        "updateTopic -b {broker} -t T_go_ordered -r 4 -w 4",
        "updateTopic -b {broker} -t T3_ordered -r 4 -w 4",
    ):
        assert "success" in probes["5.5.0"].ask(side, ROOT, "admin", *command.split())
    done = go_round_trip(side, tmp_path, "T_go", "gopher", "gophersecret")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    saw = json.loads(done.stdout.splitlines()[-1])
    assert (saw["sent"], len(saw["received"]), len(saw["ordered"])) == (["0"] * 5, 6, 5)
    assert "check signature failed" in go_round_trip(side, tmp_path, "T_go", "gopher", "wrongsecret").stderr
    assert "no permission to access Topic:T3" in go_round_trip(side, tmp_path, "T3", "gopher", "gophersecret").stderr


def test_a_twinlog_replica_takes_over_log_and_accounts_of_a_protected_java_master(sides, managed, tmp_path: Path):
    side = sides["java"]
    slave = {**SHARED, **PROTECTED["5.5.0"], "brokerRole": "SLAVE", "brokerId": "1", "initAuthenticationUser": ""}
    with Twinlog().broker(tmp_path / "replica", side.names.address, **slave) as replica:
        until(lambda: same_logs(side.broker.store, replica.store), "the log is the master's")
        file = replica.store / "config" / "accounts.json"
        until(lambda: file.exists() and "Topic:Pre*" in file.read_text(), "the accounts are the master's", seconds=60)
        assert "alicesecret" not in file.read_text()


def test_a_java_replica_follows_our_protected_master(servers: Servers, managed):
    ours, replica = servers.sides["twinlog"].broker.store, servers.replica.result().store
    until(lambda: same_logs(ours, replica), "the log is the master's")
    for name in ("topics.json", "subscriptionGroup.json"):
        until(lambda name=name: same_config(ours, replica, name, versions=False), f"{name} is the master's")
