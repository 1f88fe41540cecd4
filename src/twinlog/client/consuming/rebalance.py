"""Which queues each member of a group reads: the same answer from every member, in every language."""

from collections.abc import Iterable, Sequence

from twinlog.wire.bodies import MessageQueue


def allocate_averagely(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
    """My share: neighbouring queues, the first members get one more when they do not divide evenly.

    Java's AllocateMessageQueueAveragely, so that mixed groups agree without talking to each other.
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


def plan_moves(
    held: Iterable[MessageQueue], mine: Sequence[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """(queues to release, queues to take) that lead from what is held to what is mine."""
    held, wanted = set(held), set(mine)
    return sorted(held - wanted), sorted(wanted - held)


def _java_order(member: str) -> bytes:
    return member.encode("utf-16-be", "surrogatepass")  # Java compares UTF-16 units
