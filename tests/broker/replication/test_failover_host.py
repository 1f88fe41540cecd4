"""A broker with failover: when its log surely has what it reported, and what a restart to cut the log keeps."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest
from tests.broker.replication.test_role_change import change_role
from tests.broker.running import broker_conf, running_broker
from tests.replication.cluster import status, until

from twinlog.broker.replication import failover_host
from twinlog.broker.replication.failover_host import FailoverHost
from twinlog.broker.replication.tail_cut import RestartToCut
from twinlog.failover.failover_service import FailoverService
from twinlog.replication.replica.cut_plan import CutIntent
from twinlog.replication.replica.replica_service import Divergence
from twinlog.replication.replica.status import ReplicaStatus

NO_ETCD = "127.0.0.1:1"


@pytest.fixture
def boot(tmp_path, monkeypatch):
    """A function that gives the machine's start an id."""
    path = tmp_path / "boot_id"
    monkeypatch.setattr(failover_host, "_BOOT_ID", path)
    return lambda name: path.write_text(f"{name}\n")


@pytest.fixture
def start(tmp_path):
    """A function that makes the host of a broker that starts; `master_end` is that of the master it follows."""
    conf = broker_conf(tmp_path / "store", brokerRole="SLAVE", brokerId=1)

    def make(master_end=None, end=500):
        status = ReplicaStatus()
        if master_end is not None:
            status.master_end = master_end
            status.follow()
        store = SimpleNamespace(log_start=0, log_end=end, whole_end=end, report=SimpleNamespace(clean=True))
        ctx = SimpleNamespace(settings=conf.broker, conf=conf, store=store, is_master=False)
        replication = SimpleNamespace(instance="me", replica=SimpleNamespace(status=status))
        return FailoverHost(ctx, replication)

    (tmp_path / "store" / "config").mkdir(parents=True)
    return make


def test_a_killed_process_has_all_and_a_stopped_machine_may_not(boot, start):
    boot("first")
    assert start().log().whole, "it never reported anything"
    assert start().log().whole, "what a killed process wrote, the machine still has"
    boot("second")
    assert not start().log().whole
    assert not start(master_end=501).log().whole
    host = start(master_end=500)
    assert host.log().whole and start().log().whole, "it has caught up"


def test_a_clean_stop_outlives_the_machine_and_does_not_end_a_doubt(boot, start):
    """Seen to fail when a clean stop made any log whole: a log in doubt could lead after a restart of the service."""
    boot("first")
    start().stopped()
    boot("second")
    assert start().log().whole, "everything was on disk"
    boot("third")
    doubtful = start()
    assert not doubtful.log().whole
    doubtful.stopped()
    assert not start().log().whole
    start(master_end=500).log()
    boot("fourth")
    assert not start().log().whole, "it ran when the machine stopped"


def test_a_log_that_is_not_all_there_any_more_is_in_doubt_and_one_that_was_to_be_cut_is_not(boot, start, monkeypatch):
    """Seen to fail: with the disk of the log not mounted, a broker could lead with an empty log."""
    boot("first")
    start().stopped()
    assert not start(end=0).log().whole
    assert start().log().whole, "it is there again"
    host = start()
    host._replication.replica.divergence = Divergence(300, "new:10911", 7)
    intent = CutIntent(300, 500, "", "new:10911", 7, 0)
    monkeypatch.setattr(failover_host, "begin_cut", lambda *_: intent)
    host._ctx.wall_ms = lambda: 0
    with pytest.raises(RestartToCut):
        asyncio.run(host.cut_divergence("new:10911", 7))
    host.stopped()
    assert start(end=300).log().whole


async def test_a_broker_that_ends_notes_that_all_is_on_disk(boot, tmp_path):
    boot("first")
    conf = broker_conf(tmp_path / "store", brokerRole="SLAVE", brokerId=1, failoverEtcd=NO_ETCD)
    noted = tmp_path / "store" / "config" / "twinlogBoot"
    async with running_broker(conf) as broker:
        assert noted.read_text() == "first\n"
        assert (await status(broker))["failover"], "`replication switch` looks there"
        assert "twinlog failover switchover" in (await change_role(broker, "ASYNC_MASTER")).remark
    assert noted.read_text() == "stopped 0\n"


async def test_a_restart_to_cut_the_log_keeps_the_settings_that_were_changed(boot, tmp_path, monkeypatch):
    """Seen to fail: the broker went on with the settings of its first start."""
    boot("first")
    cut, runs = asyncio.Event(), []

    async def run(self):
        runs.append(self)
        await cut.wait()
        if len(runs) == 1:
            raise RestartToCut(CutIntent(0, 1, "", "new:10911", 7, 0))
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(FailoverService, "run", run)
    conf = broker_conf(tmp_path / "store", brokerRole="SLAVE", brokerId=1, failoverEtcd=NO_ETCD)
    async with running_broker(conf) as broker:
        ctx = broker.context
        ctx.replace_conf(dataclasses.replace(ctx.conf, store=dataclasses.replace(ctx.conf.store, reserved_hours=7)))
        cut.set()
        await until(lambda: len(runs) == 2 and broker.context is not None, "it runs again")
        assert broker.context is not ctx and broker.context.conf.store.reserved_hours == 7
        await until(lambda: broker._is_ready, "it is ready")
