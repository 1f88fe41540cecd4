"""What an operator does with a group of real brokers: force a member that lacks messages, empty a store, look back."""

from __future__ import annotations

import json

import pytest
from tests.faults.failover_group import FailoverGroup
from tests.faults.load import Load
from tests.interop.replica_pair import log_end, until
from typer.testing import CliRunner

from twinlog.cli.failover.app import failover
from twinlog.store.offline.tail_file import read_tail

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Operator:
    """Runs commands of `twinlog failover`."""

    def __init__(self, group: FailoverGroup) -> None:
        self._etcd = group.etcd.address

    def run(self, *words: str, status: int = 0) -> str:
        """What is printed; lines are joined, since a terminal may break them anywhere."""
        result = CliRunner().invoke(failover, words, env={"FAILOVER_ETCD": self._etcd, "COLUMNS": "200"})
        text = " ".join((result.stdout + result.stderr).split())
        assert result.exit_code == status, f"{words}: {result.exit_code}, {text}"
        return text

    def history(self) -> list[dict]:
        return json.loads(self.run("history", "--json"))


def test_an_operator_forces_a_member_that_lacks_messages_and_later_empties_its_store(tmp_path):
    """Two brokers; one is away while the other one acknowledges more, and then that one is lost.

    Nobody has published the end of the lost log then: the command must not say that nothing is lost.
    """
    with FailoverGroup.running(tmp_path, ("a", "b"), failoverLeaseSeconds="2", inSyncReplicas="1") as group:
        operator, brokers = Operator(group), group.group.brokers
        load = Load(group.group.names.address, seed=1)
        group.in_sync(2)
        with load.running():
            load.go_on(20)
        old = group.leader()
        new = "b" if old == "a" else "a"
        brokers[new].kill()
        group.in_sync(1)
        begin = log_end(brokers[new].store)
        with load.running():
            load.go_on(20)
        brokers[old].kill()
        until(lambda: group.keys().leader is None, "the lease of the lost master has ended", 30)
        group.restart(new)
        address = brokers[new].address
        until(lambda: address in {one.address for one in group.keys().members.values()}, "it is a member again", 30)
        end = log_end(brokers[old].store)
        assert end > begin

        # It is not in sync, and no end of the lost log is published any more.
        told = operator.run("failover", "--to", address, status=1)
        assert f"{address} is not in sync: what the last master had and nobody published would be lost" in told
        assert "Repeat with --force" in told
        assert "is not in sync" in operator.run("failover", "--to", address, status=1), "nothing was asked for"
        told = operator.run("failover", "--to", address, "--force")
        assert f"{address} is the master of broker-a now, epoch 2 how much is lost is not known" in told
        assert operator.history()[0]["mayLose"] is True

        # The old master comes back: now the history has the exact range, and the file.
        group.restart(old)
        until(lambda: operator.history()[0]["tails"], "the history has the tail", 60)
        record = operator.history()[0]
        (tail,) = record["tails"]
        assert record["lost"] == [begin, end] == [tail["begin"], tail["end"]]
        kept = next((brokers[old].store / "set-aside").glob("*/tail-*"))
        assert tail["file"] == str(kept) and tail["messages"] == len(list(read_tail(kept)))
        assert f"set aside {tail['messages']} messages, perhaps acknowledged" in operator.run("history")
        group.in_sync(2)

        # Its store is emptied, and it copies everything.
        conf = str(brokers[old].home / "broker.conf")
        assert "this store is in sync" in operator.run("reinit", "-c", conf, "--yes", status=1)
        told = operator.run("reinit", "-c", conf, "--yes", "--force", status=1)
        assert "is locked by a running broker" in told
        brokers[old].stop()
        group.in_sync(1)
        assert "confirm with --yes" in operator.run("reinit", "-c", conf, status=1)
        told = operator.run("reinit", "-c", conf, "--yes")
        assert "the store is kept in" in told and "it copies the log of broker-a from the master" in told
        assert not (brokers[old].store / "commitlog").exists()
        assert "this store is the master's" in operator.run(
            "reinit", "-c", str(brokers[new].home / "broker.conf"), "--yes", "--force", status=1
        )
        group.restart(old)
        group.in_sync(2)
        group.equal_logs()
