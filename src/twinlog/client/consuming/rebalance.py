"""Which queues each member of a group reads. Every member computes the same result, in every language.

The strategies are those of Java's client, with the same result for the same queues and members, so that a group may
have members in both languages. `ConsumerOptions.allocate` chooses one; all members of a group must have the same.
"""

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence

from twinlog.client.errors import BadArgument
from twinlog.wire.bodies import MessageQueue

Allocate = Callable[[Iterable[MessageQueue], Iterable[str], str], list[MessageQueue]]


def allocate_averagely(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
    """The share of member `me`: neighbouring queues; the first members get one more when they do not divide evenly.

    This is Java's AllocateMessageQueueAveragely, the default of both clients.
    """
    all_queues, all_members = sorted(queues), sorted(members, key=_java_order)
    if me not in all_members or not all_queues:
        return []
    index = all_members.index(me)
    average, rest = divmod(len(all_queues), len(all_members))
    if len(all_queues) <= len(all_members):
        return [all_queues[index]] if index < len(all_queues) else []
    size = average + 1 if index < rest else average
    start = index * size if index < rest else index * size + rest
    return all_queues[start : start + size]


def allocate_by_circle(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
    """Queues in turn, as cards are dealt, so that each member has some of every broker.

    Java: AllocateMessageQueueAveragelyByCircle.
    """
    all_queues, all_members = sorted(queues), sorted(members, key=_java_order)
    if me not in all_members:
        return []
    return all_queues[all_members.index(me) :: len(all_members)]


def allocate_by_config(mine: Iterable[MessageQueue]) -> Allocate:
    """A strategy that gives this member the queues `mine`, whatever others do. Java: AllocateMessageQueueByConfig."""
    fixed = list(mine)

    def allocate(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
        return list(fixed)

    return allocate


def allocate_by_machine_room(rooms: Iterable[str]) -> Allocate:
    """A strategy that shares the queues of brokers in these rooms; brokers are called `room@name`.

    Java: AllocateMessageQueueByMachineRoom.
    """
    wanted = frozenset(rooms)

    def allocate(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
        near = [queue for queue in sorted(queues) if _room_of(queue.broker_name) in wanted]
        all_members = sorted(members, key=_java_order)
        if me not in all_members:
            return []
        index, count = all_members.index(me), len(all_members)
        each, rest = divmod(len(near), count)
        share = near[each * index : each * (index + 1)]
        return [*share, near[index + each * count]] if rest > index else share

    return allocate


def allocate_nearby(
    inner: Allocate, queue_room: Callable[[MessageQueue], str], member_room: Callable[[str], str]
) -> Allocate:
    """A strategy that divides the queues of each machine room among the members there, by `inner`.

    Queues of a room without members are divided among all. Java: AllocateMachineRoomNearby.
    """

    def allocate(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
        all_members = sorted(members, key=_java_order)
        if me not in all_members:
            return []
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            queues_in.setdefault(_named(queue_room(queue), queue), []).append(queue)
        members_in: dict[str, list[str]] = {}
        for member in all_members:
            members_in.setdefault(_named(member_room(member), member), []).append(member)
        here = member_room(me)
        near = queues_in.pop(here, [])
        share = inner(near, members_in[here], me) if near else []
        for room in sorted(queues_in, key=_java_order):
            if room not in members_in:
                share += inner(queues_in[room], all_members, me)
        return share

    return allocate


def allocate_by_consistent_hash(virtual_nodes: int = 10) -> Allocate:
    """A strategy in which few queues move when a member comes or goes; shares are less even.

    Every member stands `virtual_nodes` times on a ring. Java: AllocateMessageQueueConsistentHash.
    """
    if virtual_nodes < 1:
        raise BadArgument(f"virtual_nodes={virtual_nodes} is below 1: no member would get a queue")

    def allocate(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
        all_members = sorted(members, key=_java_order)
        if me not in all_members:
            return []
        ring = {_ring_place(f"{each}-{i}"): each for each in all_members for i in range(virtual_nodes)}
        places = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[places[bisect.bisect_left(places, _ring_place(text)) % len(places)]]

        return [queue for queue in sorted(queues) if owner(queue) == me]

    return allocate


def plan_moves(
    held: Iterable[MessageQueue], mine: Sequence[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """(queues to release, queues to take), to get from the queues in `held` to those in `mine`."""
    held, wanted = set(held), set(mine)
    return sorted(held - wanted), sorted(wanted - held)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")  # Java compares UTF-16 units


def _ring_place(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _room_of(broker_name: str) -> str | None:
    # Java: split("@") drops empty pieces at the end, so `room@` is a name without a room, and `@name` one in room "".
    pieces = broker_name.rstrip("@").split("@")
    return pieces[0] if len(pieces) == 2 else None


def _named(room: str, whose: object) -> str:
    if not room:
        raise BadArgument(f"the machine room of {whose} is not known; let the function return a name for each")
    return room
