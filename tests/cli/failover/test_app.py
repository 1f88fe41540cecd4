"""`twinlog failover` against a real etcd, with keys as brokers write them."""

import asyncio
import json
import os

import pytest
from tests.failover.etcd_server import start_etcd
from tests.failover.situations import keys
from tests.interop.processes import free_port
from typer.testing import CliRunner

from twinlog.cli.failover.app import failover
from twinlog.cli.failover.reinit import set_store_aside, stored_member
from twinlog.failover.etcd import Etcd
from twinlog.failover.records import History, encode_record
from twinlog.settings.store import StoreSettings


def run(*words):
    return CliRunner().invoke(failover, [str(word) for word in words])


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    with start_etcd(tmp_path_factory.mktemp("etcd")) as server:
        address = f"127.0.0.1:{server.port}"
        asyncio.run(fill(address))
        yield address


async def fill(address):
    shown = keys()
    client = Etcd([address], timeout_s=10)
    history = History(epoch=3, member="a", address="a:10911", start=0, reason="first start", at_ms=1_700_000_000_000)
    rows = {"leader": shown.leader, "epoch": 3, "in-sync": shown.in_sync, "history/3": history}
    rows |= {f"members/{name}": one for name, one in shown.members.items()}
    for name, value in rows.items():
        await client.put(f"/twinlog/C/g/{name}", encode_record(value))


def test_every_command_reads_or_writes_the_group(etcd, tmp_path):
    listed = run("list", "--etcd", etcd)
    assert listed.exit_code == 0, listed.output
    assert "C/g: master a:10911, epoch 3" in listed.output and listed.output.count("replica") == 2
    (group,) = json.loads(run("list", "--etcd", etcd, "--json").stdout)
    assert group["leader"]["member"] == "a" and sorted(group["members"]) == ["a", "b", "c"]
    assert "first start" in run("history", "g", "--etcd", etcd).output
    assert json.loads(run("history", "--etcd", etcd, "--json").stdout)[0]["epoch"] == 3
    assert "twinlog failover resume g" in run("pause", "--why", "new disks", "--etcd", etcd).output
    assert "new disks" in run("list", "g", "--etcd", etcd).output
    assert json.loads(run("resume", "--etcd", etcd, "--json").stdout)["pause"] is None
    assert "is not paused" in run("resume", "--etcd", etcd).output
    refused = run("switchover", "--to", "nobody:1", "--etcd", etcd)
    assert refused.exit_code == 1 and "no member nobody:1 of g runs" in refused.output
    refused = run("history", "h", "--etcd", etcd)
    assert refused.exit_code == 1 and "no group h" in refused.output


def test_a_broken_replica_is_set_aside_as_a_whole(etcd, tmp_path):
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    (store / "config").mkdir(parents=True)
    (store / "config" / "twinlogInstance").write_text("x\n")
    (store / "commitlog").mkdir()
    conf.write_text(
        f"brokerClusterName=C\nbrokerName=g\nbrokerId=1\nbrokerRole=SLAVE\nfailoverEtcd={etcd}\nstorePathRootDir={store}\n"
    )
    refused = run("reinit", "-c", conf)
    assert refused.exit_code == 1 and "confirm with --yes" in refused.output
    done = run("reinit", "-c", conf, "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in store.iterdir()) == ["lock", "set-aside"]
    (kept,) = (store / "set-aside").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == ["commitlog", "config"]


def test_a_store_that_is_set_aside_in_part_is_not_the_member_any_more(tmp_path, monkeypatch):
    """Seen to fail: killed in the middle, it had an empty log and the id that the in-sync set names."""
    for name in ("commitlog", "config", "index"):
        (tmp_path / name).mkdir()
    (tmp_path / "config" / "twinlogInstance").write_text("x\n")
    rename, moved = os.rename, []

    def rename_once(source, target):
        if moved:
            raise OSError("killed")
        moved.append(source)
        rename(source, target)

    monkeypatch.setattr("os.rename", rename_once)
    with pytest.raises(OSError, match="killed"):
        set_store_aside(StoreSettings(root_dir=str(tmp_path)))
    assert moved == [tmp_path / "config"] and (tmp_path / "commitlog").is_dir() and stored_member(tmp_path) is None


def test_an_etcd_that_does_not_answer_is_one_line_with_the_next_step():
    failed = run("list", "--etcd", f"127.0.0.1:{free_port()}")
    assert failed.exit_code == 1 and "no endpoint of etcd answers" in failed.output
    assert "--etcd HOST:PORT" in failed.output and "Traceback" not in failed.output
