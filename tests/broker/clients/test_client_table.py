"""Who is online: registration per connection, notices, expiry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.offline import Wire

from twinlog.broker.clients.client_table import Client, ClientTable, Notice
from twinlog.wire.bodies import ConsumerData, SubscriptionData

SILENCE_MS = 120_000


def subscription(topic: str, version: int = 1, expression: str = "*") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_version=version, sub_string=expression)


def data(*topics: str, group: str = "G", model: str | int = "CLUSTERING", version: int = 1) -> ConsumerData:
    return ConsumerData(
        group_name=group, message_model=model, subscription_data_set=[subscription(topic, version) for topic in topics]
    )


def client(wire: Wire, client_id: str = "c") -> Client:
    return Client(wire, client_id, "JAVA", 479)


@pytest.fixture
def table() -> ClientTable:
    return ClientTable()


def test_a_new_member_is_announced_to_all_of_its_group_itself_included(table):
    first, second = Wire("1"), Wire("2")
    assert table.register_consumer(client(first), data("T"), 0) == Notice("G", (first,))
    assert table.register_consumer(client(second), data("T"), 0) == Notice("G", (first, second))


def test_an_unchanged_heartbeat_announces_nothing(table):
    wire = Wire()
    table.register_consumer(client(wire), data("T"), 0)
    assert table.register_consumer(client(wire), data("T"), 1) is None


def test_another_set_of_topics_is_announced_and_another_expression_is_not(table):
    wire = Wire()
    table.register_consumer(client(wire), data("T"), 0)
    assert table.register_consumer(client(wire), data("T", "U"), 1) is not None
    assert table.register_consumer(client(wire), data("T"), 2) is not None
    assert table.register_consumer(client(wire), data("T", version=2), 3) is None
    assert table.subscription("G", "T").sub_version == 2
    assert table.subscription("G", "U") is None


def test_an_older_subscription_does_not_replace_a_newer_one(table):
    table.register_consumer(client(Wire("1")), data("T", version=5), 0)
    table.register_consumer(client(Wire("2")), data("T", version=4), 0)
    assert table.subscription("G", "T").sub_version == 5


@pytest.mark.parametrize("model", ["BROADCASTING", 0])
def test_a_broadcasting_group_gets_no_notice(table, model):
    wire = Wire()
    assert table.register_consumer(client(wire), data("T", model=model), 0) is None
    table.register_consumer(client(Wire("2")), data("T", model=model), 0)
    assert table.drop(wire) == []


def test_enum_members_may_come_as_ordinals(table):
    consumer = ConsumerData(group_name="G", consume_type=0, message_model=1, consume_from_where=4)
    table.register_consumer(client(Wire()), consumer, 0)
    group = table.consumers["G"]
    assert (group.consume_type, group.message_model) == ("CONSUME_ACTIVELY", "CLUSTERING")
    assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"


def test_a_heartbeat_without_subscriptions_leaves_them_alone(table):
    wire = Wire()
    table.register_consumer(client(wire), data("T"), 0)
    table.register_consumer(client(wire), data(), 1, subscriptions=False)
    assert table.subscription("G", "T") is not None


def test_a_closed_connection_leaves_every_group_and_the_others_are_notified(table):
    wire, other = Wire("1"), Wire("2")
    for group in ("G", "H"):
        table.register_consumer(client(wire), data("T", group=group), 0)
    table.register_consumer(client(other), data("T"), 0)
    table.register_producer(client(wire), "P", 0)
    assert table.drop(wire) == [Notice("G", (other,))]
    assert set(table.consumers) == {"G"}
    assert table.producers == {}
    assert table.groups_of_topic("T") == {"G"}
    assert table.drop(wire) == []


def test_the_last_member_takes_the_group_with_it(table):
    gone = []
    table.on_group_gone.append(gone.append)
    wire = Wire()
    table.register_consumer(client(wire), data("T"), 0)
    assert table.unregister_consumer(wire, "G") is None
    assert gone == ["G"]
    assert table.groups_of_topic("T") == set()
    assert table.unregister_consumer(wire, "G") is None


def test_only_silent_clients_expire_and_without_a_notice(table):
    silent, alive = Wire("1"), Wire("2")
    table.register_consumer(client(silent, "s"), data("T"), 0)
    table.register_producer(client(silent, "s"), "P", 0)
    table.register_consumer(client(alive, "a"), data("T"), 50_000)
    assert table.expire(SILENCE_MS, SILENCE_MS) == []
    assert table.expire(SILENCE_MS + 1, SILENCE_MS) == [silent]
    assert table.consumers["G"].client_ids() == ["a"]
    assert table.producers == {}


def test_a_connection_that_changes_its_client_id_is_no_new_member(table):
    wire = Wire()
    table.register_consumer(client(wire, "before"), data("T"), 0)
    assert table.register_consumer(client(wire, "after"), data("T"), 1) is None
    assert table.find_consumer("G", "after").connection is wire
    assert table.find_consumer("G", "before") is None


def test_producers_take_turns_and_are_found_by_id(table):
    first, second = Wire("1"), Wire("2")
    table.register_producer(client(first, "one"), "P", 0)
    table.register_producer(client(second, "two"), "P", 0)
    assert [table.next_producer("P").client_id for _ in range(3)] == ["one", "two", "one"]
    assert table.next_producer("NOBODY") is None
    assert table.find_producer("two").connection is second
    table.unregister_producer(first, "P")
    assert table.next_producer("P").client_id == "two"


def test_a_fingerprint_differs_only_from_another_one(table):
    assert not table.swap_fingerprint("G", 5)
    assert not table.swap_fingerprint("G", 5)
    assert table.swap_fingerprint("G", 6)


@given(st.lists(st.tuples(st.sampled_from("jlcpux"), st.integers(0, 2), st.sampled_from("GH")), max_size=40))
def test_the_registry_holds_exactly_what_joined_and_did_not_leave(steps):
    table, wires = ClientTable(), [Wire(str(n)) for n in range(3)]
    consumers, producers = set(), set()
    for action, number, group in steps:
        wire = wires[number]
        if action == "j":
            table.register_consumer(client(wire), data("T", group=group), 0)
            consumers.add((group, wire))
        elif action == "l":
            table.unregister_consumer(wire, group)
            consumers.discard((group, wire))
        elif action == "p":
            table.register_producer(client(wire), group, 0)
            producers.add((group, wire))
        elif action == "u":
            table.unregister_producer(wire, group)
            producers.discard((group, wire))
        elif action == "c":
            table.drop(wire)
            consumers = {pair for pair in consumers if pair[1] is not wire}
            producers = {pair for pair in producers if pair[1] is not wire}
        else:
            table.expire(1, 10)
        assert {(g.name, wire) for g in table.consumers.values() for wire in g.clients} == consumers
        assert {(name, wire) for name, members in table.producers.items() for wire in members} == producers
        assert table.groups_of_topic("T") == {name for name, _ in consumers}
        assert set(table.connections()) == {wire for _, wire in consumers | producers}
