"""Routes and lists of topics, read from a route table."""

import pytest

from twinlog.nameserver import routes
from twinlog.nameserver.route_table import RouteTable
from twinlog.nameserver.routes import find_route, keep_zone
from twinlog.wire.bodies import DataVersion

from .tables import leaving, registration, topics


@pytest.fixture
def table():
    table = RouteTable()
    table.register(registration(), 0)
    return table


def test_a_route_names_brokers_and_queues(table):
    table.register(registration(1), 0)
    route = find_route(table, "T")
    assert [queue.broker_name for queue in route.queue_datas] == ["broker-a"]
    assert route.broker_datas[0].broker_addrs == {0: "broker-a:0", 1: "broker-a:1"}


def test_an_unknown_topic_has_no_route(table):
    assert find_route(table, "none") is None


def test_a_zone_keeps_its_brokers_and_those_without_a_master():
    table = RouteTable()
    table.register(registration(name="near", zone="Z1", filter_servers=["f:1"]), 0)
    table.register(registration(name="far", zone="z2", filter_servers=["f:2"]), 0)
    table.register(registration(name="none"), 0)
    table.register(registration(0, name="headless"), 0)
    table.register(registration(1, name="headless"), 0)
    table.unregister([leaving(0, name="headless")])
    route = keep_zone(find_route(table, "T"), "z1")
    assert [broker.broker_name for broker in route.broker_datas] == ["near", "headless"]
    assert [queue.broker_name for queue in route.queue_datas] == ["near", "headless"]
    assert route.filter_server_table == {"near:0": ["f:1"]}


def test_a_zone_without_brokers_gives_empty_lists(table):
    route = keep_zone(find_route(table, "T"), "nowhere")
    assert (route.broker_datas, route.queue_datas) == ([], [])


def test_topics_by_cluster(table):
    table.register(registration(name="b", cluster="D", topics=topics("only-d", "T")), 0)
    assert routes.topics_of_cluster(table, "D") == ["T", "only-d"]
    assert routes.topics_of_cluster(table, "nope") == []


def test_system_topics_are_clusters_and_brokers_with_the_address_of_one(table):
    assert routes.system_topics(table) == (["C", "broker-a"], "broker-a:0")
    assert routes.system_topics(RouteTable()) == ([], None)


def test_unit_flags_choose_the_lists(table):
    for name, flag in (("none", 0), ("unit", 1), ("sub", 2), ("both", 3)):
        table.register(registration(topics=topics(name, topic_sys_flag=flag), version=DataVersion(0, flag, 9)), 0)
    assert routes.unit_topics(table) == ["unit", "both"]
    assert routes.unit_subscription_topics(table) == ["sub", "both"]
    assert routes.unit_subscription_only_topics(table) == ["sub"]
