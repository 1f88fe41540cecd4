import pytest

from twinlog.client.errors import BadRoute
from twinlog.client.routing.routes import borrowed_route, broker_addresses, read_route
from twinlog.wire.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData


def route_data(perm: int = 6, addresses: dict[int, str] | None = None, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[QueueData(broker_name="a", read_queue_nums=3, write_queue_nums=2, perm=perm)],
        broker_datas=[BrokerData(cluster="C", broker_name="a", broker_addrs=addresses or {0: "h:1", 1: "h:2"})],
        order_topic_conf=order,
    )


def test_writers_and_readers_see_their_own_queues():
    route = read_route("T", route_data())
    assert [q.queue_id for q in route.writable] == [0, 1]
    assert [q.queue_id for q in route.readable] == [0, 1, 2]


def test_permissions_hide_queues():
    assert read_route("T", route_data(perm=4)).writable == ()
    assert read_route("T", route_data(perm=2)).readable == ()


def test_without_a_master_a_topic_can_be_read_and_not_written():
    route = read_route("T", route_data(addresses={1: "h:2"}))
    assert route.writable == ()
    assert len(route.readable) == 3
    assert route.address_of("a") == "h:2"
    assert route.master_of("a") is None


def test_the_suggested_replica_is_used_while_it_is_there():
    route = read_route("T", route_data())
    assert route.address_of("a", 1) == "h:2"
    assert route.address_of("a", 5) == "h:1"
    assert route.address_of("unknown") is None


def test_an_order_topic_keeps_its_queues_while_a_broker_is_away():
    route = read_route("T", route_data(order="a:2;gone:1"))
    assert route.writable == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "gone", 0))


def test_a_new_topic_borrows_the_default_route_with_fewer_queues():
    route = borrowed_route("New", route_data(perm=7), 2)
    assert route.is_default
    assert [(q.topic, q.queue_id) for q in route.writable] == [("New", 0), ("New", 1)]


@pytest.mark.parametrize("order", [None, "broker-a:99999999999999999999999"])
def test_a_route_with_more_queues_than_a_client_can_hold_is_an_error_that_names_them(order):
    route = route_data(order=order)
    if order is None:
        route.queue_datas[0].read_queue_nums = 2**31 - 1
    with pytest.raises(BadRoute, match=r"route of topic 'T' names \d+ queues of '.*': a client takes at most 65536"):
        read_route("T", route)


def test_a_broker_whose_address_is_not_one_gets_no_sends_while_another_has_a_master():
    data = route_data()
    data.queue_datas.append(QueueData(broker_name="bad", read_queue_nums=1, write_queue_nums=1, perm=6))
    data.broker_datas.append(BrokerData(cluster="C", broker_name="bad", broker_addrs={0: "..:5"}))
    route = read_route("T", data)
    assert {queue.broker_name for queue in route.writable} == {"a"}
    assert {queue.broker_name for queue in route.readable} == {"a", "bad"}, "else a reader would skip its messages"
    assert broker_addresses([route]) == {"h:1", "h:2"}


def test_a_replica_is_read_from_when_the_masters_address_is_not_one():
    route = read_route("T", route_data(addresses={0: "..:5", 1: "h:2"}))
    assert route.address_of("a") == "h:2"
    assert (route.writable, len(route.readable)) == ((), 3)


def test_a_route_of_bad_addresses_alone_keeps_them_for_the_error_to_name():
    route = read_route("T", route_data(addresses={0: "..:5"}))
    assert route.master_of("a") == "..:5" and len(route.writable) == 2
