"""What a route means to a client: which queues to write, which to read, and at which address."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.base.addresses import is_address
from twinlog.client.errors import BadRoute
from twinlog.settings.broker import TOPIC_QUEUES_MAX
from twinlog.wire.bodies import MessageQueue, TopicRouteData
from twinlog.wire.codes import MASTER_ID
from twinlog.wire.values.topic_bits import READ, WRITE


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's queues and the addresses of their brokers, by broker name and broker id."""

    topic: str
    writable: tuple[MessageQueue, ...] = ()
    readable: tuple[MessageQueue, ...] = ()
    brokers: dict[str, dict[int, str]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)  # broker name -> cluster name
    borrowed_queues: int = 0  # above 0: borrowed from TBW102, the topic does not exist yet
    masterless: tuple[str, ...] = ()  # brokers with queues to write, and no master at the moment

    @property
    def is_default(self) -> bool:
        return self.borrowed_queues > 0

    def master_of(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def address_of(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The address of that broker, else of any broker of the same name."""
        addresses = self.brokers.get(broker_name, {})
        return addresses.get(broker_id) or next((addresses[each] for each in sorted(addresses)), None)


def read_route(topic: str, route: TopicRouteData) -> TopicRoute:
    """The name server's `route` for a client, with the queues in the order that all clients use."""
    brokers = {broker.broker_name: _usable_first(broker.broker_addrs) for broker in route.broker_datas}
    writable, unusable, readable, masterless = [], [], [], []
    for queues in route.queue_datas:
        _check_count(topic, queues.broker_name, max(queues.write_queue_nums, queues.read_queue_nums))
        # Producers need a master; consumers can read from any replica.
        if queues.perm & WRITE and MASTER_ID in brokers.get(queues.broker_name, {}):
            usable = is_address(brokers[queues.broker_name][MASTER_ID])
            listed = writable if usable else unusable
            listed += [MessageQueue(topic, queues.broker_name, i) for i in range(queues.write_queue_nums)]
        elif queues.perm & WRITE and queues.write_queue_nums > 0:
            masterless.append(queues.broker_name)
        if queues.perm & READ and brokers.get(queues.broker_name):
            readable += [MessageQueue(topic, queues.broker_name, i) for i in range(queues.read_queue_nums)]
    ordered = ordered_queues(topic, route.order_topic_conf)
    return TopicRoute(
        topic,
        tuple(ordered or sorted(writable or unusable)),  # with unusable ones only, a send reports the address
        tuple(sorted(readable)),
        brokers,
        {broker.broker_name: broker.cluster for broker in route.broker_datas},
        masterless=tuple(sorted(masterless)),
    )


def ordered_queues(topic: str, order_topic_conf: str | None) -> list[MessageQueue]:
    """The fixed queue list of an order topic (`broker-a:4;broker-b:4`), which stays the same while a broker is down."""
    queues = []
    for part in (order_topic_conf or "").split(";"):
        name, _, count = part.partition(":")
        if name and count.isascii() and count.isdigit():
            _check_count(topic, name, int(count[:20]))
            queues += [MessageQueue(topic, name, i) for i in range(int(count))]
    return queues


def _check_count(topic: str, broker_name: str, count: int) -> None:
    if count > TOPIC_QUEUES_MAX:
        raise BadRoute(topic, broker_name, count, TOPIC_QUEUES_MAX)


def borrowed_route(topic: str, template: TopicRouteData, queues_max: int) -> TopicRoute:
    """The route a topic will get when its first message creates it from `template`."""
    for queues in template.queue_datas:
        count = min(queues_max, queues.read_queue_nums)
        queues.read_queue_nums = queues.write_queue_nums = count
    return replace(read_route(topic, template), borrowed_queues=queues_max)


def broker_addresses(routes: Iterable[TopicRoute]) -> set[str]:
    """Every valid address in `routes`."""
    found = {address for route in routes for ids in route.brokers.values() for address in ids.values()}
    return {address for address in found if is_address(address)}


def _usable_first(addresses: Mapping[int, str]) -> dict[int, str]:
    """The valid addresses; all of them when none is valid, so that an error can name them.

    The broker's queues stay readable in any case: without them a reader would skip messages silently, and the members
    of a group would divide the queues differently.
    """
    usable = {broker_id: address for broker_id, address in addresses.items() if is_address(address)}
    return usable or dict(addresses)
