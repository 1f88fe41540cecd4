"""Audits of live brokers: Twinlog's by digests, and any broker by asking for its records."""

import dataclasses
import shutil

import pytest
from tests.spark.jobs.audit.audit_stores import BODY_AT, compare_sides
from tests.spark.jobs.audit.test_audit import kinds

from twinlog.broker.embedded import EmbeddedBroker
from twinlog.client import Outgoing
from twinlog.client.sync import Producer
from twinlog.spark.cluster_options import ClusterOptions
from twinlog.spark.errors import BadOption
from twinlog.spark.jobs.audit import compare as compare_module
from twinlog.spark.jobs.audit.compare import RangeTask, run_task
from twinlog.spark.jobs.audit.pair_plan import inspect_log, plan_pair
from twinlog.spark.jobs.audit.pairs import pairs_in, registered_pairs
from twinlog.spark.jobs.endpoint import parse_endpoint
from twinlog.wire.bodies import BrokerData, ClusterInfo

SEGMENT = 64 * 1024
SETTINGS = {"mappedFileSizeCommitLog": str(SEGMENT)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """(home, places): a stopped broker's directory with some segments."""
    home = tmp_path_factory.mktemp("live")
    with EmbeddedBroker(home / "one", SETTINGS) as broker, Producer(broker.namesrv_address, "PG") as producer:
        results = [producer.send(Outgoing("Live", b"%03d " % n + b"x" * 900, keys=[f"k{n}"])) for n in range(200)]
    places = sorted(int(one.offset_message_id[-16:], 16) for one in results)
    return home, places


def store_of(home):
    return next(path for path in home.rglob("commitlog")).parent


@pytest.fixture
def two(stores, tmp_path):
    """(directory of a running broker's copy, directory of another copy)."""
    home, _ = stores
    return [shutil.copytree(home / "one", tmp_path / name) for name in ("one", "two")]


def spoil(home, offset, data):
    path = store_of(home) / "commitlog" / f"{offset - offset % SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def test_a_live_broker_equals_its_store_and_a_flipped_byte_is_found_in_either_order(stores, two):
    _, places = stores
    one, two_ = two
    spoil_at = places[120]
    with EmbeddedBroker(one, SETTINGS) as broker:
        live, copy = parse_endpoint(broker.broker_address), parse_endpoint(str(store_of(two_)))
        assert inspect_log(live).gives_digests
        assert compare_sides(live, copy, metadata=False) == []
        spoil(two_, spoil_at + BODY_AT + 3, b"!")
        (found,) = compare_sides(live, copy, metadata=False)
        assert (found.kind, found.side, found.physical_offset, found.item) == ("corrupt", "replica", spoil_at, "Live")
        (found,) = compare_sides(copy, live, metadata=False)
        assert (found.kind, found.side, found.physical_offset) == ("corrupt", "master", spoil_at)


def test_two_live_brokers_are_compared_with_their_metadata(stores, two):
    _, places = stores
    with EmbeddedBroker(two[0], SETTINGS) as one, EmbeddedBroker(two[1], SETTINGS) as other:
        spoil(two[1], places[60] + BODY_AT + 3, b"!")  # a broker that starts on this would repair it
        sides = parse_endpoint(one.broker_address), parse_endpoint(other.broker_address)
        with Producer(one.namesrv_address, "PG") as producer:
            more = producer.send(Outgoing("Fresh", b"only the master has this"))
        found = compare_sides(*sides, settle_s=0.0)
        lag = [at.physical_offset for at in found if at.kind == "lag"]
        assert lag == [int(more.offset_message_id[-16:], 16)]
        assert ("corrupt", places[60]) in kinds(found)
        assert {(at.item, at.key) for at in found if at.kind == "metadata"} >= {("topics", "Fresh")}
        assert {at.kind for at in found} == {"lag", "corrupt", "metadata"}


@pytest.mark.parametrize("both", [False, True])
def test_a_broker_without_digests_is_asked_for_its_records(stores, two, both):
    """As Java's brokers are: here a Twinlog broker is treated like one."""
    _, places = stores
    with EmbeddedBroker(two[0], SETTINGS) as broker:
        view = dataclasses.replace(inspect_log(parse_endpoint(broker.broker_address)), gives_digests=False)
        other = view if both else inspect_log(parse_endpoint(str(store_of(two[1]))))
        plan = plan_pair("pair", view, other)
        task = RangeTask(0, plan.begin, plan.end)
        assert [one.kind for one in run_task(plan, task)] == ["compared"]
        if not both:
            spoil(two[1], places[7] + BODY_AT, b"?")
            found = list(run_task(plan, task))
            assert kinds(found)[:-1] == [("corrupt", places[7])]


def test_records_beyond_a_live_masters_end_are_extra(stores, two):
    _, places = stores
    with EmbeddedBroker(two[0], SETTINGS) as broker:
        view = inspect_log(parse_endpoint(broker.broker_address))
        end = places[-2]
        plan = plan_pair("pair", dataclasses.replace(view, end=end), view)
        assert plan.extra == (end, view.end)
        found = list(run_task(plan, RangeTask(0, *plan.extra, "extra")))
        assert kinds(found) == [("extra", places[-2]), ("extra", places[-1])]


def test_bytes_a_live_broker_has_deleted_meanwhile_are_a_note(stores, two):
    with EmbeddedBroker(two[0], SETTINGS) as broker:
        view = inspect_log(parse_endpoint(broker.broker_address))
        plan = plan_pair("pair", view, inspect_log(parse_endpoint(str(store_of(two[1])))))
        beyond = RangeTask(0, view.end, view.end + 10)
        found = list(compare_module._by_digest(plan, beyond, lambda r: [None for _ in r], view.endpoint.broker.digests))
        assert [one.kind for one in found] == ["note"]


def test_pairs_are_those_the_name_server_knows(broker):
    options = ClusterOptions(name_servers=(broker.namesrv_address,))
    with pytest.raises(BadOption, match="knows no replicas"):
        registered_pairs(options)
    with pytest.raises(BadOption, match="--namesrvAddr"):
        registered_pairs(ClusterOptions(name_servers=()))
    known = {
        "a": BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1", 1: "h:2", 2: "h:3"}),
        "b": BrokerData(cluster="c", broker_name="b", broker_addrs={0: "h:4"}),
    }
    pairs = pairs_in(ClusterInfo(broker_addr_table=known), options)
    assert [(one.text, other.text) for one, other in pairs] == [("h:1", "h:2"), ("h:1", "h:3")]
    known["b"] = BrokerData(cluster="c", broker_name="b", broker_addrs={1: "h:5"})
    with pytest.raises(BadOption, match="no master"):
        pairs_in(ClusterInfo(broker_addr_table=known), options)
