"""Accounts and policies with real clients and mqadmin, compared with a Java 5.5.0 broker; replicas of both kinds."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.java_rocketmq import Broker, JavaRocketmq, NameServer
from tests.interop.replica_pair import same_logs, until
from tests.interop.test_protected_master import PROTECTED
from tests.interop.twinlog_servers import Twinlog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]

ROOT = ("twinlogkey", "12345678")
ALICE = ("alice", "alicesecret")
SHARED = {"brokerName": "guarded", "mappedFileSizeCommitLog": str(1 << 20)}


@dataclass
class Side:
    """A protected broker under its own name server."""

    names: NameServer
    broker: Broker


class Probe:
    """AccessProbe.java with one version of the client."""

    def __init__(self, version: str, home: Path) -> None:
        home.mkdir()
        command = JavaRocketmq(version).client_command("AccessProbe", home=home)
        self._errors = (home / "errors.txt").open("w")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def ask(self, side: Side, account: tuple[str, str], *words: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        filled = [word.replace("{broker}", side.broker.address) for word in words]
        self._process.stdin.write("\t".join([side.names.address, *account, *filled]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"saw"'):
                return json.loads(line)["saw"]
        raise AssertionError(f"the JVM ended\n{Path(self._errors.name).read_text()[-2000:]}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    home = tmp_path_factory.mktemp("access")
    twinlog, java = Twinlog(), JavaRocketmq("5.5.0")
    with contextlib.ExitStack() as stack:
        found: dict[str, Side] = {}
        for name, made in (("twinlog", twinlog), ("java", java)):
            names = stack.enter_context(twinlog.name_server(home / f"{name}-names"))
            conf = {**SHARED, **PROTECTED["5.5.0"]}
            found[name] = Side(names, stack.enter_context(made.broker(home / name, names.address, **conf)))
        yield found


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Probe]]:
    home = tmp_path_factory.mktemp("probes")
    made = {version: Probe(version, home / version) for version in ("5.5.0",)}
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


def steady(text: str, side: Side) -> list[str]:
    """Without addresses, stack traces and passwords, which only Java gives away."""
    text = text.replace(side.broker.address, "<broker>").replace(side.names.address, "<names>")
    text = re.sub(r"\b(alicesecret|kingsecret|12345678|null)\b", "<password>", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not re.match(r"at \S+\(|\.\.\. \d+ more", line)]
    return sorted(kept) if text.lstrip().startswith("#") else kept


@pytest.fixture(scope="module")
def managed(sides, probes) -> dict[str, list[tuple[str, list[str]]]]:
    """What mqadmin printed on each side, command by command."""
    printed: dict[str, list[tuple[str, list[str]]]] = {}
    for name, side in sides.items():
        for topic in ("T1", "PreA", "PreDenied", "T3"):
            probes["5.5.0"].ask(side, ROOT, "admin", *f"updateTopic -b {{broker}} -t {topic} -r 1 -w 1".split())
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


@pytest.mark.parametrize("version", ["5.5.0"])
def test_java_clients_get_what_their_account_may_have_and_the_remarks_of_java(version, sides, probes, managed):
    for account, words, wanted in CASES:
        for name in ("twinlog", "java"):
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


def test_a_twinlog_replica_takes_over_log_and_accounts_of_a_protected_java_master(sides, managed, tmp_path: Path):
    side = sides["java"]
    slave = {**SHARED, **PROTECTED["5.5.0"], "brokerRole": "SLAVE", "brokerId": "1", "initAuthenticationUser": ""}
    with Twinlog().broker(tmp_path / "replica", side.names.address, **slave) as replica:
        until(lambda: same_logs(side.broker.store, replica.store), "the log is the master's")
        file = replica.store / "config" / "accounts.json"
        until(lambda: file.exists() and "Topic:Pre*" in file.read_text(), "the accounts are the master's", seconds=60)
        assert "alicesecret" not in file.read_text()
