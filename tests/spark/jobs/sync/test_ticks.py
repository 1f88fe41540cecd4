"""Ticks against real brokers, without Spark: what a task does for its brokers."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.interop.replica_pair import pull_everything

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Admin, Producer
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.jobs.sync.replicas.replica import SparseFiles
from twinlog.spark.jobs.sync.replicas.replica_state import SyncFolder
from twinlog.spark.jobs.sync.sync_plan import BrokerTarget
from twinlog.spark.jobs.sync.task import run_group
from twinlog.spark.jobs.sync.tick_work import Drained, TickWork
from twinlog.store.offline.compare import compare_logs
from twinlog.store.offline.store_files import StoreFiles
from twinlog.wire.bodies import SubscriptionGroupConfig

SEGMENT = 128 * 1024
SETTINGS = {"mappedFileSizeCommitLog": str(SEGMENT), "brokerName": "broker-a"}


class Master:
    """A running broker and the directory its replica goes to."""

    def __init__(self, home: Path, broker: EmbeddedBroker, producer: Producer) -> None:
        self.home, self.broker, self._producer = home, broker, producer
        self.to = home / "replicas"
        self.replica = self.to / "broker-a"
        self.target = BrokerTarget("broker-a", broker.broker_address)
        self.sent = 0

    def send(self, count: int, topic: str = "Sync", body: int = 900) -> None:
        for _ in range(count):
            self._producer.send(Outgoing(topic, b"%06d" % self.sent + os.urandom(body)))
            self.sent += 1

    def admin(self) -> Admin:
        return Admin(self.broker.namesrv_address)

    def tick(self, target: BrokerTarget | None = None, **more):
        work = TickWork(
            to=str(self.to), cluster=ClusterOptions(name_servers=()), groups=[[target or self.target]], **more
        )
        (report,) = run_group(work, 0)
        return report


@pytest.fixture
def master(tmp_path):
    with (
        EmbeddedBroker(tmp_path / "master", SETTINGS) as broker,
        Producer(broker.namesrv_address, "PG") as producer,
    ):
        yield Master(tmp_path, broker, producer)


def assert_same_log(one: Path, other: Path) -> None:
    files = sorted(path.name for path in (other / "commitlog").iterdir())
    assert files
    for name in files:
        ours, theirs = (one / "commitlog" / name).read_bytes(), (other / "commitlog" / name).read_bytes()
        assert ours.rstrip(b"\0") == theirs.rstrip(b"\0"), name


def kinds(report) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in report.entries:
        for change in entry.changes:
            found.setdefault(change.kind, set()).add(change.key)
    return found


def test_a_tick_makes_a_twin_and_the_next_moves_only_what_is_new(master):
    master.send(400)
    first = master.tick()
    assert first.error == "" and first.lag == 0 and first.end == first.master_end > 2 * SEGMENT
    assert_same_log(master.home / "master" / "store", master.replica)
    assert "Sync" in kinds(first)["topics"] and "TOOLS_CONSUMER" in kinds(first)["groups"]
    for name in ("topics.json", "subscriptionGroup.json"):
        assert (master.replica / "config" / name).exists()

    stamps = {path: path.stat().st_mtime_ns for path in master.replica.rglob("*.json")}
    drained = {("broker-a", first.replica): Drained(1, first.ranges[-1].sequence)}
    idle = master.tick(drained=drained)
    assert (idle.begin, idle.end, idle.changes, idle.ranges, idle.entries) == (first.end, first.end, 0, [], [])
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items() if path.exists()), "nothing written"

    master.send(1)
    master.send(1, topic="Another")
    third = master.tick(drained=drained)
    assert (third.begin, third.end) == (first.end, third.master_end)
    assert [(one.begin, one.end, one.records) for one in third.ranges] == [(first.end, third.end, 2)]
    assert kinds(third) == {"topics": {"Another"}}
    written = {path.name for path, stamp in stamps.items() if path.exists() and path.stat().st_mtime_ns != stamp}
    assert written == {"topics.json", "state.json"}


def test_the_masters_version_is_adopted_and_removals_follow(master):
    with master.admin() as admin:
        admin.save_group(master.target.address, SubscriptionGroupConfig(group_name="G1"))
        master.send(1, topic="Short")
        master.tick()
        before = master.tick()
        admin.delete_topic("Short")
    after = master.tick(drained={("broker-a", before.replica): Drained(before.entries[-1].sequence)})
    (change,) = [one for entry in after.entries for one in entry.changes if one.kind == "topics"]
    assert (change.key, change.new) == ("Short", None) and '"topicName":"Short"' in change.old
    ours, theirs = (
        (place / "config" / "topics.json").read_text().partition("topicConfigTable")[0]
        for place in (master.replica, master.home / "master" / "store")
    )
    assert ours == theirs


def test_a_real_broker_starts_on_the_replica_and_serves_every_message(master):
    master.send(400)
    assert master.tick().error == ""
    shutil.copytree(master.replica, master.home / "other" / "store")
    with EmbeddedBroker(master.home / "other", SETTINGS) as other:
        found = pull_everything(other.broker_address, "Sync", 8)
        assert sorted(int(one.body[:6]) for one in found) == list(range(400))
        with Producer(other.namesrv_address, "PG2") as producer:
            producer.send(Outgoing("Sync", b"as a master"))


def test_a_store_directory_is_read_instead_of_the_ha_port(master):
    master.send(300)
    target = BrokerTarget("broker-a", master.target.address, str(master.home / "master" / "store"))
    report = master.tick(target)
    assert report.error == "" and {one.source for one in report.ranges} == {"store"} and report.lag == 0
    master.send(10)
    report = master.tick(target)
    assert report.error == "" and report.lag == 0
    assert_same_log(master.home / "master" / "store", master.replica)


def test_what_the_master_deleted_before_does_not_count_as_copied(tmp_path):
    with EmbeddedBroker(tmp_path / "master", SETTINGS) as broker, Producer(broker.namesrv_address, "PG") as producer:
        Master(tmp_path, broker, producer).send(300)
    (tmp_path / "master" / "store" / "commitlog" / f"{0:020d}").unlink()
    with EmbeddedBroker(tmp_path / "master", SETTINGS) as broker, Producer(broker.namesrv_address, "PG") as producer:
        report = Master(tmp_path, broker, producer).tick()
    assert (report.begin, report.end, report.error) == (SEGMENT, report.master_end, "")
    assert [(one.begin, one.end) for one in report.ranges] == [(SEGMENT, report.master_end)]


def test_a_replica_far_behind_is_copied_over_several_ticks(master):
    master.send(400)
    ends = [master.tick(tick_ms=1, range_bytes_max=50_000).end]
    while ends[-1] < master.tick(tick_ms=1, range_bytes_max=50_000).master_end and len(ends) < 50:
        ends.append(master.tick(tick_ms=1, range_bytes_max=50_000).end)
    assert ends == sorted(ends)
    assert_same_log(master.home / "master" / "store", master.replica)


def test_a_running_broker_keeps_its_directory(master):
    master.send(1)
    master.tick()
    shutil.copytree(master.replica, master.to / "broker-b" / "store")
    with EmbeddedBroker(master.to / "broker-b", {**SETTINGS, "brokerName": "broker-b"}):
        work = TickWork(to=str(master.to / "broker-b"), cluster=ClusterOptions(name_servers=()), groups=())
        target = BrokerTarget("store", master.target.address)
        (report,) = run_group(TickWork(to=work.to, cluster=work.cluster, groups=[[target]]), 0)
    assert "locked by a running broker" in report.error


def test_a_replica_that_went_on_by_itself_is_refused_and_left_alone(master):
    master.send(50)
    master.tick()
    home = master.home / "gone-on"
    shutil.copytree(master.replica, home / "store")
    with EmbeddedBroker(home, SETTINGS) as other, Producer(other.namesrv_address, "PG2") as producer:
        producer.send(Outgoing("Sync", b"nobody else has this"))
    shutil.rmtree(master.replica)
    shutil.copytree(home / "store", master.replica)
    ahead = master.tick()
    assert "beyond the master's" in ahead.error and str(ahead.master_end) in ahead.error
    master.send(50)
    differs = master.tick()
    assert "the logs differ from offset" in differs.error and str(differs.master_end) in differs.error
    with StoreFiles(master.replica) as ours, StoreFiles(home / "store") as theirs:
        assert compare_logs(ours.commit_log, theirs.commit_log).is_equal


def test_bad_targets_and_lost_masters_are_errors_of_their_own_broker(master):
    master.send(5)
    dead = BrokerTarget("broker-x", "127.0.0.1:1")
    misnamed = BrokerTarget("broker-y", master.target.address)
    blocked = BrokerTarget("broker-z", master.target.address)
    master.to.mkdir()
    (master.to / "broker-z").write_text("a file where a directory should be")
    work = TickWork(
        to=str(master.to),
        cluster=ClusterOptions(name_servers=(), connect_timeout_ms=500),
        groups=[[dead, misnamed, blocked, master.target]],
    )
    found = {report.broker: report for report in run_group(work, 0)}
    assert "cannot connect to 127.0.0.1:1" in found["broker-x"].error
    assert f"{master.target.address} is broker-a, not broker-y" in found["broker-y"].error
    assert "broker-z" in found["broker-z"].error
    assert found["broker-a"].error == "" and found["broker-a"].lag == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_no_more_is_named_with_what_to_do(master, monkeypatch, number):
    write = SparseFiles.write_parts

    def half(self, descriptor, parts, at):
        write(self, descriptor, [part[: len(part) // 2] for part in parts], at)
        raise OSError(number, os.strerror(number))

    def full_tick():
        with monkeypatch.context() as full:
            full.setattr(SparseFiles, "write_parts", half)
            return master.tick()

    told = f"{master.replica} cannot be written ({os.strerror(number)}): free space or allow writing"
    master.send(5)
    assert full_tick().error.startswith(told)
    assert list(master.replica.glob("commitlog/*")) == [], "what does not count takes no room"
    end = master.tick().end
    master.send(50)
    assert full_tick().error.startswith(told)
    (file,) = master.replica.glob("commitlog/*")
    assert not any(file.read_bytes()[end:]) and file.stat().st_size == SEGMENT
    assert file.stat().st_blocks * 512 < end + 8192
    assert master.tick().error == "" and master.tick().lag == 0
    assert_same_log(master.home / "master" / "store", master.replica)


def test_a_range_that_could_not_be_saved_is_not_reported_and_the_next_tick_reports_it_whole(master, monkeypatch):
    master.send(5)
    save = SyncFolder.save

    def full(folder, state):
        if state.ranges:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(folder, state)

    with monkeypatch.context() as disk:
        disk.setattr(SyncFolder, "save", full)
        report = master.tick()
    assert "No space left" in report.error and (report.ranges, report.end) == ([], 0)
    master.send(5)
    after = master.tick()
    assert [one.sequence for one in after.ranges] == list(range(1, len(after.ranges) + 1))
    assert [0, *(one.end for one in after.ranges)] == [*(one.begin for one in after.ranges), after.master_end]


def test_an_observer_counts_for_nothing_at_a_sync_master(tmp_path):
    settings = {**SETTINGS, "brokerRole": "SYNC_MASTER", "slaveTimeout": "200"}
    with (
        EmbeddedBroker(tmp_path / "master", settings) as broker,
        Producer(broker.namesrv_address, "PG") as producer,
    ):
        master = Master(tmp_path, broker, producer)
        over, reports = threading.Event(), []

        def tick() -> None:
            while not over.is_set():
                reports.append(master.tick())

        ticking = threading.Thread(target=tick)
        ticking.start()
        try:
            seen = []
            while len(seen) < 60 or (sum(one.end > one.begin for one in reports) < 5 and len(seen) < 5000):
                seen.append(producer.send(Outgoing("Sync", b"x" * 1000)).status.name)
        finally:
            over.set()
            ticking.join()
    assert all(one.error == "" for one in reports) and sum(one.end > one.begin for one in reports) >= 5
    assert set(seen) <= {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}, "the bytes are there, and count for nothing"


PROGRAM = """
import sys
from twinlog.spark.jobs.sync.task import run_group
from twinlog.spark.jobs.sync.tick_work import TickWork
from twinlog.spark.jobs.sync.sync_plan import BrokerTarget
from twinlog.spark.jobs.sync.replicas.replica import SparseFiles
from twinlog.spark.jobs.sync.replicas.replica_state import SyncFolder
from twinlog.spark.cluster_options import ClusterOptions
target = BrokerTarget("broker-a", sys.argv[2])
work = TickWork(to=sys.argv[1], cluster=ClusterOptions(name_servers=()), groups=[[target]], range_bytes_max=60_000)
print("begins", flush=True)
while True:
    run_group(work, 0)
"""


def test_kill_9_at_any_moment_leaves_a_replica_that_becomes_a_twin(master):
    master.send(300)
    for round_ in range(6):
        task = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(master.to), master.target.address], stdout=subprocess.PIPE
        )
        assert task.stdout is not None and task.stdout.readline() == b"begins\n"
        until = time.monotonic() + 0.004 + 0.03 * round_
        while time.monotonic() < until:
            master.send(2, topic=f"Topic{round_}")
        os.kill(task.pid, signal.SIGKILL)
        task.wait()
        task.stdout.close()
    last = master.tick(lock_wait_s=2.0)
    assert last.error == "" and last.lag == 0
    assert_same_log(master.home / "master" / "store", master.replica)
    at = 0
    for number, one in enumerate(last.ranges, 1):
        assert (one.sequence, one.begin) == (number, at)
        at = one.end
    assert at == last.end and sum(one.records for one in last.ranges) == master.sent
    keys = [(one.kind, one.key, one.new) for entry in last.entries for one in entry.changes]
    assert len(keys) == len(set(keys)), "each difference once"
    assert {f"Topic{n}" for n in range(6)} <= {key for kind, key, _ in keys if kind == "topics"}
