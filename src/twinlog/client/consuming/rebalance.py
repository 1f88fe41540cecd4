"""Which queues each member of a group reads. Every member computes the same result, in every language."""

from collections.abc import Iterable, Sequence

from twinlog.wire.bodies import MessageQueue


def allocate_averagely(queues: Iterable[MessageQueue], members: Iterable[str], me: str) -> list[MessageQueue]:
    """The share of member `me`: neighbouring queues; the first members get one more when they do not divide evenly.

    This is Java's AllocateMessageQueueAveragely, so that Java and Python members of a group agree.
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
    """(queues to release, queues to take), to get from the queues in `held` to those in `mine`."""
    held, wanted = set(held), set(mine)
    return sorted(held - wanted), sorted(wanted - held)


def _java_order(member: str) -> bytes:
    return member.encode("utf-16-be", "surrogatepass")  # Java compares UTF-16 units
