"""The short form of the rows of docs/reliability.md; `python tools/soak.py` has the long one, and Java's side."""

import random

import pytest
from tests.faults.failover_group import ThreeEtcds
from tests.faults.load import Load
from tests.faults.network import Network
from tests.faults.rows import disks, garbage, links, processes
from tests.faults.rows.quorums import MACHINES, cut_once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def seed() -> int:
    chosen = random.randrange(1 << 30)
    print(f"seed {chosen}")
    return chosen


def test_nothing_is_acknowledged_that_a_killed_replica_does_not_have(tmp_path, seed):
    processes.kill_replica(tmp_path, seed, rounds=1, down_s=0.5)


def test_a_master_that_was_stopped_and_replaced_acknowledges_nothing(tmp_path, seed):
    processes.stop_master(tmp_path, seed, rounds=1, stopped_s=3.5)


def test_a_master_on_a_full_disk_says_so_and_goes_on_with_new_space(tmp_path, seed):
    disks.full_disk_of_master(tmp_path, seed, rounds=1)


def test_after_a_power_cut_of_both_brokers_all_flushed_sends_are_there(tmp_path, seed):
    disks.power_cut(tmp_path, seed, rounds=1)


def test_garbage_acknowledges_nothing_and_takes_no_memory(tmp_path, seed):
    garbage.garbage(tmp_path, seed, streams=500, frames=1500, greedy_s=3, sends=300)


def test_a_master_cut_off_from_its_promoted_replica_acknowledges_nothing(tmp_path, seed):
    links.partition_promoted(tmp_path, seed, seconds=1)


def test_with_two_of_three_etcds_a_master_that_is_cut_off_is_replaced_and_acknowledges_nothing(tmp_path, seed):
    with (
        Network.of(*MACHINES) as network,
        ThreeEtcds.at(tmp_path, network.places(), failoverLeaseSeconds="2") as group,
    ):
        load = Load(group.group.names.address, seed, timeout_ms=4000)
        group.etcds.kill("etcd0")
        cut_once(group, network, load, "leader", "both", seconds=0)
        verdict = group.group.judge(load, group.leader())
    assert not verdict.broken, f"{load.history}: {verdict}"
