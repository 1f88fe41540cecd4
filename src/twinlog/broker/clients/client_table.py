"""Which producers and consumers are connected, and what each consumer group subscribes to.

A client is registered per connection, not per client id: a client that reconnects is new until its old connection is
closed. No socket is used here: the caller sends the notices and closes the connections that it gets back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from twinlog.wire.bodies import ConsumerData, SubscriptionData

BROADCASTING = "BROADCASTING"
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = (BROADCASTING, "CLUSTERING")
CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class Peer(Hashable, Protocol):
    """What the table needs of a connection."""

    @property
    def peer_text(self) -> str: ...


@dataclass(slots=True)
class Client:
    """A client on one connection."""

    connection: Peer
    client_id: str
    language: str = "JAVA"
    version: int = 0
    last_update_ms: int = 0
    account: str | None = None  # that its heartbeat was signed with


@dataclass(slots=True)
class ConsumerGroup:
    """The connected members of a consumer group; the settings are those of the last heartbeat."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    clients: dict[Peer, Client] = field(default_factory=dict[Peer, Client])
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict[str, SubscriptionData])
    subscription_length: int = 0

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.clients.values()]


@dataclass(frozen=True, slots=True)
class Notice:
    """The members of `group` changed; these connections are to be notified."""

    group: str
    connections: tuple[Peer, ...]


@dataclass(slots=True)
class Membership:
    """Where one connection is registered."""

    consumer_groups: set[str] = field(default_factory=set[str])
    producer_groups: set[str] = field(default_factory=set[str])


class ClientTable:
    """All connected clients. `on_group_gone` is called for a consumer group whose last connection left."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, Client]] = {}
        self.on_group_gone: list[Callable[[str], None]] = []
        self.registrations = 0  # places in groups, of all connections
        self.subscription_length = 0  # of all consumer groups
        self._members: dict[Peer, Membership] = {}
        self._groups_by_topic: dict[str, set[str]] = {}
        self._fingerprints: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    # -- joining ------------------------------------------------------------------------------------

    def register_consumer(
        self, client: Client, data: ConsumerData, now_ms: int, *, notify: bool = True, subscriptions: bool = True
    ) -> Notice | None:
        """Register a consumer's heartbeat; a notice when the group has a new member or another set of topics."""
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = _name(data.consume_type, CONSUME_TYPES, group.consume_type)
        group.message_model = _name(data.message_model, MESSAGE_MODELS, group.message_model)
        group.consume_from_where = _name(data.consume_from_where, CONSUME_FROM, group.consume_from_where)
        changed = self._join(group.clients, client, now_ms)
        self._member(client.connection).consumer_groups.add(group.name)
        if subscriptions:
            changed |= self._subscribe(group, data.subscription_data_set)
        if not changed or not notify or group.is_broadcasting:
            return None
        return Notice(group.name, tuple(group.clients))

    def register_producer(self, client: Client, group: str, now_ms: int) -> None:
        self._join(self.producers.setdefault(group, {}), client, now_ms)
        self._member(client.connection).producer_groups.add(group)

    def swap_fingerprint(self, group: str, fingerprint: int) -> bool:
        """Set the heartbeat fingerprint of a group; whether there was another one before."""
        before = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return before is not None and before != fingerprint

    # -- leaving -------------------------------------------------------------------------------------

    def unregister_consumer(self, connection: Peer, group: str, *, notify: bool = True) -> Notice | None:
        """Remove a connection from a group; a notice for the members that remain."""
        membership = self._members.get(connection)
        if membership is None or group not in membership.consumer_groups:
            return None
        membership.consumer_groups.discard(group)
        self._forget_if_unused(connection)
        return self._leave(self.consumers[group], connection, notify)

    def unregister_producer(self, connection: Peer, group: str) -> None:
        membership = self._members.get(connection)
        if membership is not None and group in membership.producer_groups:
            membership.producer_groups.discard(group)
            self._leave_producers(group, connection)
            self._forget_if_unused(connection)

    def drop(self, connection: Peer) -> list[Notice]:
        """Remove a closed connection from all groups; a notice for each group that has members left."""
        membership = self._members.pop(connection, None)
        if membership is None:
            return []
        for group in membership.producer_groups:
            self._leave_producers(group, connection)
        notices = [self._leave(self.consumers[group], connection, True) for group in sorted(membership.consumer_groups)]
        return [notice for notice in notices if notice is not None]

    def expire(self, now_ms: int, silence_ms_max: int) -> list[Peer]:
        """Remove clients without a heartbeat for too long; returns their connections, which are to be closed.

        Java: no notice on this path; closing the connection may notify other groups it is in.
        """
        silent: dict[Peer, None] = {}
        for group in list(self.consumers.values()):
            for client in _silent(group.clients, now_ms, silence_ms_max):
                silent[client.connection] = None
                self.unregister_consumer(client.connection, group.name, notify=False)
        for name, clients in list(self.producers.items()):
            for client in _silent(clients, now_ms, silence_ms_max):
                silent[client.connection] = None
                self.unregister_producer(client.connection, name)
        return list(silent)

    # -- looking up --------------------------------------------------------------------------------

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self.consumers.get(group)
        return found.subscriptions.get(topic) if found is not None else None

    def find_consumer(self, group: str, client_id: str) -> Client | None:
        found = self.consumers.get(group)
        return _find(found.clients.values(), client_id) if found is not None else None

    def find_producer(self, client_id: str) -> Client | None:
        """The producer with this id, in any group; it waits for a reply."""
        return _find((client for clients in self.producers.values() for client in clients.values()), client_id)

    def next_producer(self, group: str, fits: Callable[[Client], bool] = lambda client: True) -> Client | None:
        """One connection of a producer group that fits, in turn."""
        clients = [client for client in self.producers.get(group, {}).values() if fits(client)]
        if not clients:
            return None
        turn = self._turns.get(group, 0)
        self._turns[group] = turn + 1
        return clients[turn % len(clients)]

    def groups_of_topic(self, topic: str) -> set[str]:
        """Online groups that subscribe to the topic."""
        return set(self._groups_by_topic.get(topic, ()))

    def groups_with(self, connection: Peer, consumers: set[str], producers: set[str]) -> int:
        """In how many groups a connection would be if it joined these too."""
        known = self._members.get(connection)
        if known is None:
            return len(consumers) + len(producers)
        return len(known.consumer_groups | consumers) + len(known.producer_groups | producers)

    def groups_of(self, connection: Peer) -> int:
        """In how many groups a connection is."""
        return self.groups_with(connection, set(), set())

    def connections(self) -> Iterator[Peer]:
        yield from self._members

    # -- inside ------------------------------------------------------------------------------------

    def _member(self, connection: Peer) -> Membership:
        return self._members.setdefault(connection, Membership())

    def _forget_if_unused(self, connection: Peer) -> None:
        membership = self._members[connection]
        if not membership.consumer_groups and not membership.producer_groups:
            del self._members[connection]

    def _join(self, clients: dict[Peer, Client], client: Client, now_ms: int) -> bool:
        known = clients.get(client.connection)
        self.registrations += known is None
        if known is None or known.client_id != client.client_id:
            clients[client.connection] = replace(client, last_update_ms=now_ms)
            return known is None
        known.last_update_ms, known.account = now_ms, client.account
        return False

    def _subscribe(self, group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        """Make the group's subscriptions these; whether the set of topics changed."""
        latest = {data.topic: data for data in wanted}
        before = group.subscriptions.keys()
        gone, new = before - latest.keys(), latest.keys() - before
        for topic in gone:
            del group.subscriptions[topic]
            self._forget_topic(group.name, topic)
        for topic, data in latest.items():
            known = group.subscriptions.get(topic)
            if known is None or data.sub_version > known.sub_version:
                group.subscriptions[topic] = data
                self._groups_by_topic.setdefault(topic, set()).add(group.name)
        self._set_length(group, sum(map(subscription_length, group.subscriptions.values())))
        return bool(gone or new)

    def _set_length(self, group: ConsumerGroup, length: int) -> None:
        self.subscription_length += length - group.subscription_length
        group.subscription_length = length

    def _leave(self, group: ConsumerGroup, connection: Peer, notify: bool) -> Notice | None:
        self.registrations -= group.clients.pop(connection, None) is not None
        if not group.clients:
            del self.consumers[group.name]
            self._set_length(group, 0)
            self._fingerprints.pop(group.name, None)
            for topic in group.subscriptions:
                self._forget_topic(group.name, topic)
            for listener in self.on_group_gone:
                listener(group.name)
            return None
        return Notice(group.name, tuple(group.clients)) if notify and not group.is_broadcasting else None

    def _leave_producers(self, group: str, connection: Peer) -> None:
        clients = self.producers[group]
        self.registrations -= clients.pop(connection, None) is not None
        if not clients:
            del self.producers[group]
            self._turns.pop(group, None)

    def _forget_topic(self, group: str, topic: str) -> None:
        groups = self._groups_by_topic.get(topic)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_by_topic[topic]


def subscription_length(data: SubscriptionData) -> int:
    """Characters of text that are kept; each tag and each code counts for 8 more."""
    texts = (data.topic, data.sub_string, data.expression_type, *data.tags_set)
    return sum(map(len, texts)) + 8 * (len(data.tags_set) + len(data.code_set))


def _silent(clients: Mapping[Peer, Client], now_ms: int, silence_ms_max: int) -> list[Client]:
    return [client for client in clients.values() if now_ms - client.last_update_ms > silence_ms_max]


def _find(clients: Iterable[Client], client_id: str) -> Client | None:
    return next((client for client in clients if client.client_id == client_id), None)


def _name(value: str | int, names: tuple[str, ...], default: str) -> str:
    """An enum member by name or ordinal: some clients write the one, some the other."""
    if isinstance(value, str):
        return value
    return names[value] if 0 <= value < len(names) else default
