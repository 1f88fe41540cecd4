import sys

import pytest

from twinlog.nameserver.errors import RegistrationRefused
from twinlog.nameserver.registration import MinBrokerIdNotice, Registered
from twinlog.nameserver.route_table import SILENCE_MS_MAX, RouteTable
from twinlog.nameserver.routes import find_route
from twinlog.wire.bodies import DataVersion, QueueData

from .tables import V2, leaving, registration, topics


@pytest.fixture
def table():
    table = RouteTable()
    table.register(registration(), 0)
    return table


def perm(table, topic="T", name="broker-a"):
    return table.topics[topic][name].perm


def addresses(table, name="broker-a"):
    return table.brokers[name].broker_addrs


class TestRegistration:
    def test_a_master_brings_its_topics_and_learns_nothing(self):
        table = RouteTable()
        assert table.register(registration(), 0) == Registered()
        assert list(table.topics) == ["T", "TBW102"]
        assert table.clusters == {"C": {"broker-a": None}}

    def test_a_replica_learns_the_addresses_of_its_live_master(self, table):
        assert table.register(registration(1), 0) == Registered("broker-a:0", "ha-broker-a:0")

    def test_a_replica_without_a_master_learns_nothing(self):
        assert RouteTable().register(registration(1), 0) == Registered()

    def test_a_replica_does_not_bring_topics(self, table):
        table.register(registration(1, topics=topics("other", "more"), version=V2), 0)
        assert list(table.topics) == ["T", "TBW102"]

    def test_the_same_version_changes_nothing(self, table):
        table.register(registration(topics=topics("T", "TBW102", perm=4)), 0)
        assert perm(table) == 6

    def test_another_version_changes_topics(self, table):
        table.register(registration(topics=topics("T", "TBW102", perm=4), version=V2), 0)
        assert perm(table) == 4

    def test_a_topic_without_an_entry_is_added_even_with_the_same_version(self, table):
        table.delete_topic("T")
        table.register(registration(), 0)
        assert "T" in table.topics

    def test_an_increment_of_one_topic_keeps_the_others(self, table):
        table.register(registration(topics=topics("new"), version=V2), 0)
        assert list(table.topics) == ["T", "TBW102", "new"]

    def test_an_increment_before_a_full_registration_is_refused_and_leaves_nothing(self):
        table = RouteTable()
        with pytest.raises(RegistrationRefused, match=r"^register broker failed$"):
            table.register(registration(topics=topics("T")), 0)
        assert (table.brokers, table.clusters, table.live) == ({}, {}, {})

    def test_an_empty_registration_is_a_full_one(self):
        table = RouteTable()
        table.register(registration(topics={}), 0)
        assert addresses(table) == {0: "broker-a:0"}

    def test_absent_topics_stay_unless_registrations_are_complete(self, table):
        table.register(registration(topics=topics("a", "b"), version=V2), 0)
        assert "T" in table.topics
        table.register(registration(topics=topics("a", "b"), version=V2), 0, complete=True)
        assert list(table.topics) == ["a", "b"]

    def test_one_address_has_one_id(self, table):
        table.register(registration(1, "x:1"), 0)
        table.register(registration(0, "x:1"), 0)
        assert addresses(table) == {0: "x:1"}

    def test_a_new_address_takes_an_id_over(self, table):
        table.register(registration(0, "new:0"), 0)
        assert addresses(table) == {0: "new:0"}

    def test_an_id_held_by_a_newer_state_is_kept_and_the_newcomer_is_not_live(self, table):
        table.register(registration(version=DataVersion(5, 1, 1)), 0)
        assert table.register(registration(0, "old:0", version=DataVersion(4, 9, 9)), 0) == Registered()
        assert addresses(table) == {0: "broker-a:0"}
        assert ("C", "old:0") not in table.live

    def test_the_zone_is_cleared_by_a_registration_without_one(self, table):
        table.register(registration(zone="z1"), 0)
        assert table.brokers["broker-a"].zone_name == "z1"
        table.register(registration(), 0)
        assert table.brokers["broker-a"].zone_name is None

    def test_filter_servers_are_kept_by_none_and_removed_by_an_empty_list(self, table):
        table.register(registration(filter_servers=["f:1"]), 0)
        table.register(registration(filter_servers=None), 0)
        assert find_route(table, "T").filter_server_table == {"broker-a:0": ["f:1"]}
        table.register(registration(filter_servers=[]), 0)
        assert find_route(table, "T").filter_server_table == {}

    def test_queue_mappings_of_static_topics_come_with_the_route(self, table):
        table.register(registration(mappings={"T": {"bname": "broker-a", "topic": "T"}}, version=V2), 0)
        assert find_route(table, "T").topic_queue_mapping_by_broker == {"broker-a": {"bname": "broker-a", "topic": "T"}}


class TestUnchangedBodies:
    def test_a_body_that_was_taken_over_is_held(self, table):
        table.register(registration(digest=b"1"), 0)
        assert table.holds("C", "broker-a", "broker-a:0", 0, b"1")
        assert not table.holds("C", "broker-a", "broker-a:0", 0, b"2")
        assert not table.holds("C", "broker-a", "broker-b:0", 0, b"1")
        assert not table.holds("C", "broker-a", "broker-a:0", 1, b"1")

    def test_a_held_body_refreshes_the_broker_and_keeps_its_version(self, table):
        table.register(registration(digest=b"1", version=V2), 0)
        table.register(registration(digest=b"1", topics=None, version=DataVersion()), 77)
        assert table.live["C", "broker-a:0"].heard_ms == 77
        assert table.version_of("C", "broker-a:0") == V2

    def test_a_topic_deleted_by_an_operator_makes_the_body_worth_reading_again(self, table):
        table.register(registration(digest=b"1"), 0)
        table.delete_topic("T")
        assert not table.holds("C", "broker-a", "broker-a:0", 0, b"1")

    def test_a_replica_that_became_the_smallest_id_must_bring_its_topics(self, table):
        table.register(registration(1, digest=b"1"), 0)
        assert table.holds("C", "broker-a", "broker-a:1", 1, b"1")
        table.unregister([leaving(0)])
        assert not table.holds("C", "broker-a", "broker-a:1", 1, b"1")


class TestLeaving:
    def test_with_its_last_address_a_broker_takes_its_topics_and_its_cluster_along(self, table):
        table.unregister([leaving()])
        assert (table.topics, table.brokers, table.clusters, table.live) == ({}, {}, {}, {})

    def test_other_brokers_keep_their_part_of_a_topic(self, table):
        table.register(registration(name="broker-b"), 0)
        table.unregister([leaving()])
        assert list(table.topics["T"]) == ["broker-b"]
        assert table.clusters == {"C": {"broker-b": None}}

    def test_a_replica_that_leaves_changes_no_topic(self, table):
        table.register(registration(1), 0)
        table.unregister([leaving(1)])
        assert addresses(table) == {0: "broker-a:0"}
        assert perm(table) == 6

    def test_an_unknown_broker_may_leave_too(self, table):
        assert table.unregister([leaving(name="nobody")]) == []
        assert "T" in table.topics

    def test_a_broker_leaves_with_the_connection_of_its_last_registration(self, table):
        first, second = object(), object()
        table.register(registration(connection=first), 0)
        table.register(registration(connection=second), 0)
        assert table.registered_over(first) == []
        assert table.registered_over(second) == [leaving()]

    def test_a_broker_is_silent_after_120_seconds_or_its_own_limit(self, table):
        assert table.silent(SILENCE_MS_MAX) == []
        assert [one for one, _ in table.silent(SILENCE_MS_MAX + 1)] == [leaving()]
        table.register(registration(silence_ms_max=10), 0)
        assert [one for one, _ in table.silent(11)] == [leaving()]

    def test_a_broker_that_is_heard_is_not_silent(self, table):
        table.touch("C", "broker-a:0", 50)
        assert table.silent(SILENCE_MS_MAX + 50) == []
        table.touch("C", "nobody:0", 50)

    def test_what_leaves_while_its_name_stays_does_not_undo_a_new_master(self, table):
        table.register(registration(0, "new:0"), 0)
        table.unregister([leaving()])
        assert addresses(table) == {0: "new:0"}


class TestActingMasters:
    def group(self, acting=True):
        table = RouteTable()
        table.register(registration(acting_master=acting), 0)
        table.register(registration(2, acting_master=acting), 0)
        table.register(registration(1, acting_master=acting), 0)
        return table

    def test_without_its_master_a_group_becomes_read_only(self):
        table = self.group()
        table.unregister([leaving(0)])
        assert perm(table) == 4

    @pytest.mark.parametrize("acting", [False, None])
    def test_a_group_that_did_not_opt_in_keeps_its_permissions(self, acting):
        table = self.group(acting)
        table.unregister([leaving(0)])
        assert perm(table) == 6

    def test_the_smallest_replica_brings_topics_read_only(self):
        table = self.group()
        table.unregister([leaving(0)])
        table.register(registration(1, acting_master=True, topics=topics("T", "fresh"), version=V2), 0)
        assert perm(table, "fresh") == 4

    def test_a_smallest_replica_that_did_not_opt_in_brings_topics_writable(self):
        table = RouteTable()
        table.register(registration(1, acting_master=False), 0)
        assert perm(table) == 6

    def test_an_old_replica_never_brings_topics(self):
        table = RouteTable()
        table.register(registration(1, acting_master=None), 0)
        assert table.topics == {}

    def test_routes_show_the_smallest_id_as_master_where_this_is_supported(self):
        table = self.group()
        table.unregister([leaving(0)])
        shown = find_route(table, "T", acting_masters=True).broker_datas[0].broker_addrs
        assert shown == {0: "broker-a:1", 2: "broker-a:2"}
        assert find_route(table, "T").broker_datas[0].broker_addrs == {1: "broker-a:1", 2: "broker-a:2"}

    def test_the_topic_for_group_members_shows_true_ids(self):
        table = self.group()
        name = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        table.register(registration(acting_master=True, topics=topics(name, "x"), version=V2), 0)
        table.unregister([leaving(0)])
        assert 0 not in find_route(table, name, acting_masters=True).broker_datas[0].broker_addrs

    def test_a_writable_queue_has_no_acting_master(self):
        table = self.group()
        table.unregister([leaving(0)])
        table.add_write_permission("broker-a")
        assert 0 not in find_route(table, "T", acting_masters=True).broker_datas[0].broker_addrs

    def test_all_who_remain_are_notified_when_the_smallest_id_leaves(self):
        table = self.group()
        assert table.unregister([leaving(0)]) == [
            MinBrokerIdNotice(1, "broker-a:1", "broker-a:0", None, ("broker-a:1", "broker-a:2"))
        ]
        assert table.unregister([leaving(2)]) == []

    def test_all_but_the_new_smallest_id_are_notified_when_it_comes(self):
        table = self.group()
        table.unregister([leaving(0)])
        assert table.register(registration(0, acting_master=True), 0).notice == MinBrokerIdNotice(
            0, "broker-a:0", None, "ha-broker-a:0", ("broker-a:1", "broker-a:2")
        )

    def test_the_last_of_a_group_leaves_without_a_notice(self, table):
        assert table.unregister([leaving(0)]) == []


class TestOperators:
    def test_a_wipe_clears_the_write_bit_until_the_version_changes(self, table):
        assert table.wipe_write_permission("broker-a") == 2
        table.register(registration(), 0)
        assert perm(table) == 4
        table.register(registration(version=V2), 0)
        assert perm(table) == 6
        assert table.wipe_write_permission("nobody") == 0

    def test_adding_write_permission_sets_exactly_read_and_write(self, table):
        table.register(registration(topics=topics("T", "TBW102", perm=7), version=V2), 0)
        assert table.add_write_permission("broker-a") == 2
        assert perm(table, "TBW102") == 6

    def test_a_topic_is_deleted_everywhere_or_in_one_cluster(self, table):
        table.register(registration(name="b", cluster="D"), 0)
        table.delete_topic("T", "D")
        assert list(table.topics["T"]) == ["broker-a"]
        table.delete_topic("T", "nope")
        table.delete_topic("T")
        assert "T" not in table.topics
        table.delete_topic("T")

    def test_a_topic_is_registered_only_when_all_its_brokers_are_known(self, table):
        known, unknown = QueueData(broker_name="broker-a", perm=6), QueueData(broker_name="nobody", perm=6)
        assert not table.register_topic("X", [known, unknown])
        assert not table.register_topic("X", [])
        assert table.register_topic("X", [known])
        assert find_route(table, "X").queue_datas == [known]


@pytest.mark.parametrize("count", [10, 100_000])
def test_an_increment_costs_one_topic_however_many_there_are(count):
    table = RouteTable()
    table.register(registration(topics=topics(*(f"topic-{n}" for n in range(count)))), 0)
    assert len(table.topics) == count
    lines = lines_run(lambda: table.register(registration(topics=topics("more"), version=DataVersion(0, 1, 5)), 0))
    assert lines < 1_000  # a walk over all topics runs at least one line for each
    assert len(table.topics) == count + 1


def lines_run(work) -> int:
    """How many lines of Python `work` runs: a cost that no other load on the machine changes."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
