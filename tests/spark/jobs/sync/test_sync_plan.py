"""What a synchronisation decides without a broker: who is copied where, whose turn it is, what changed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.metadata.tables import open_tables
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.sync.broker_tick import read_master_conf, whole_revisions
from twinlog.spark.jobs.sync.replicas.metadata_changes import adopt_again, differences, image_of, versions_of
from twinlog.spark.jobs.sync.replicas.replica_state import Change
from twinlog.spark.jobs.sync.sync_plan import (
    BrokerTarget,
    SyncJob,
    check_folder,
    check_job,
    choose_masters,
    copy_share_ms,
    parse_duration_ms,
    parse_stores,
    share_out,
)
from twinlog.spark.jobs.sync.sync_run import is_behind
from twinlog.spark.jobs.sync.tick_work import BrokerReport
from twinlog.wire.bodies import BrokerData, ClusterInfo, DataVersion, SubscriptionGroupConfig, TopicConfig

NAMES = ClusterOptions(name_servers=("127.0.0.1:9876",))
CLUSTER = ClusterInfo(
    broker_addr_table={
        "a": BrokerData(cluster="C", broker_name="a", broker_addrs={0: "h:1", 1: "h:2"}),
        "b": BrokerData(cluster="C", broker_name="b", broker_addrs={0: "h:3"}),
        "c": BrokerData(cluster="C", broker_name="c", broker_addrs={1: "h:4"}),
    },
    cluster_addr_table={"One": ["a", "c"], "Two": ["b"]},
)


def job(**more):
    return SyncJob(to="/replicas", cluster=NAMES, **more)


def test_all_masters_of_a_name_server_are_copied_unless_some_are_chosen():
    assert choose_masters(CLUSTER, job()) == [BrokerTarget("a", "h:1"), BrokerTarget("b", "h:3")]
    assert choose_masters(CLUSTER, job(cluster_name="Two")) == [BrokerTarget("b", "h:3")]
    assert choose_masters(CLUSTER, job(brokers=("a",), stores={"a": "/s"})) == [BrokerTarget("a", "h:1", "/s")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"brokers": ("x",)}, "no broker 'x' is registered there; registered are a, b, c"),
        ({"brokers": ("c",)}, "broker 'c' has no master at the moment"),
        ({"cluster_name": "Three"}, "knows no cluster 'Three'; it knows One, Two"),
    ],
)
def test_a_broker_that_is_not_there_is_named(more, message):
    with pytest.raises(BadOption, match=message):
        choose_masters(CLUSTER, job(**more))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SyncJob(to="", cluster=NAMES), "--to DIR"),
        (SyncJob(to="/r"), "no masters are given"),
        (job(addresses=("h:1",), brokers=("a",)), "--address names brokers directly"),
        (job(every_ms=5), "a tick every 5 ms"),
    ],
)
def test_a_job_that_cannot_be_done_is_refused_before_anything_is_touched(given, message):
    with pytest.raises(BadOption, match=message):
        check_job(given)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "_history"])
def test_a_name_that_would_leave_its_folder_is_refused(name):
    with pytest.raises(BadOption, match="cannot be the name of a folder"):
        check_folder(name)


def test_durations_and_stores_are_read_as_operators_write_them():
    assert [parse_duration_ms(text) for text in ("10s", "500ms", "2m", "7", " 1h ")] == [
        10_000,
        500,
        120_000,
        7_000,
        3_600_000,
    ]
    assert parse_stores(["a=/data/a"]) == {"a": "/data/a"}
    for wrong in ("10x", "", "s"):
        with pytest.raises(BadOption, match="not a duration"):
            parse_duration_ms(wrong)
    with pytest.raises(BadOption, match="not BROKER=DIRECTORY"):
        parse_stores(["/data/a"])


@given(count=st.integers(1, 1000), cores=st.integers(0, 64))
def test_every_broker_has_one_task_and_a_core_at_most_two(count, cores):
    targets = [BrokerTarget(f"b{n}", "h:1") for n in range(count)]
    groups = share_out(targets, cores)
    assert len(groups) == min(count, 2 * max(cores, 1))
    assert sorted(one.name for group in groups for one in group) == sorted(one.name for one in targets)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_brokers_that_copy_at_once_share_the_time_of_a_tick():
    assert copy_share_ms(8000, 1) == copy_share_ms(8000, 4) == 8000
    assert copy_share_ms(8000, 8) == 4000
    assert copy_share_ms(8000, 1000) == 500
    assert copy_share_ms(100, 1000) == 100


def test_another_round_is_worth_it_only_while_it_brings_the_replica_closer():
    def report(**more):
        return BrokerReport("a", begin=10, master_end=100, **more)

    assert is_behind(report(end=50), 90)
    assert not is_behind(report(end=90), 90)
    assert not is_behind(report(end=10), 90), "nothing came"
    assert not is_behind(report(end=50, error="lost"), 90)
    assert not is_behind(report(end=100), 120), "the master lost its tail"


def test_a_masters_configuration_has_the_address_of_its_log():
    lines = {"brokerName": "a", "brokerClusterName": "C", "mappedFileSizeCommitLog": "1024", "haListenPort": "10912"}
    found = read_master_conf("h:10911", lines)
    assert (found.ha_address, found.segment_bytes, found.cluster) == ("h:10912", 1024, "C")
    assert read_master_conf("h:10911", {**lines, "brokerIP2": "::1", "haListenPort": "0"}).ha_address == "[::1]:10912"
    with pytest.raises(Exception, match="lacks what a replica needs"):
        read_master_conf("h:10911", {"brokerName": "a"})


def test_only_revisions_of_whole_tables_are_kept():
    held = {"topics": "e:5", "groups": ":0", "offsets": "e:7:whole"}
    assert whole_revisions(held) == {"topics": "e:5"}


# -- metadata --------------------------------------------------------------------------------------

NAMED = st.sampled_from(["A", "B", "C", "D"])
TOPICS = st.dictionaries(NAMED, st.integers(1, 3))
OFFSETS = st.dictionaries(NAMED.map(lambda name: f"{name}@G"), st.dictionaries(st.integers(0, 2), st.integers(0, 3)))
DELAYS = st.dictionaries(st.integers(1, 4), st.integers(0, 3))
FORBIDDEN = st.dictionaries(NAMED, st.dictionaries(NAMED, st.just(4), min_size=1))
TABLES = st.tuples(TOPICS, OFFSETS, DELAYS, FORBIDDEN)


def fill(tables, content, counter):
    topics, offsets, delays, forbidden = content
    version = DataVersion(counter=counter)
    configs = {name: TopicConfig(topic_name=name, read_queue_nums=n) for name, n in topics.items()}
    tables.topics.adopt(configs, version)
    tables.groups.adopt({name: SubscriptionGroupConfig(group_name=name) for name in topics}, version)
    tables.offsets.adopt(offsets, version)
    tables.delay_offsets.adopt(delays, version)
    tables.groups.adopt_forbidden(forbidden)


@given(first=TABLES, second=TABLES)
def test_adopting_differences_again_gives_the_same_tables_however_often(first, second):
    ours, theirs = open_tables(None, 1), open_tables(None, 1)
    for tables in (ours, theirs):
        fill(tables, first, 1)
    before = image_of(ours)
    fill(ours, second, 2)
    changes = differences(before, image_of(ours), versions_of(ours))
    assert changes == msgspec.json.decode(msgspec.json.encode(changes), type=list[Change])
    for _ in range(2):
        adopt_again(theirs, changes)
        assert image_of(theirs) == image_of(ours)
    assert differences(image_of(ours), image_of(theirs), versions_of(ours)) == []
    for change in changes:
        assert change.old != change.new
        assert change.version == DataVersion(counter=2)
