"""From options to numbers: which queues are read, and at which offsets reading starts and ends."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence

from twinlog.client.errors import NoRoute
from twinlog.spark.cluster import Cluster
from twinlog.spark.errors import BadOption
from twinlog.spark.offsets import EARLIEST, LATEST, Offsets, where
from twinlog.spark.reading.brokers.offsets_by_time import exact_offsets
from twinlog.spark.reading.brokers.options import Position, PositionKind, ReadOptions
from twinlog.spark.reading.data_loss import report_loss
from twinlog.wire.bodies import MessageQueue

_NOT_NAMED = "it was read before, and the options do not name it any more: name its topic again, beside the others"


def find_queues(options: ReadOptions, cluster: Cluster) -> list[MessageQueue]:
    """The queues to read, as they are now; an error for one that does not exist."""
    if options.assigned:
        known = set(cluster.queues({queue.topic for queue in options.assigned}))
        missing = [queue for queue in options.assigned if queue not in known]
        if missing:
            raise BadOption(f"assign: {where(missing[0])} does not exist; the route knows {_shown(known)}")
        return list(options.assigned)
    topics = options.topics if options.pattern is None else cluster.topics_like(options.pattern)
    return cluster.queues(topics)


def find_queues_present(options: ReadOptions, cluster: Cluster) -> list[MessageQueue]:
    """The queues to read that exist now; others may be deleted, their brokers away, or the options wrong."""
    topics = set(options.topics) | {queue.topic for queue in options.assigned}
    if options.pattern is not None:
        topics = set(cluster.topics_like(options.pattern))
    found: list[MessageQueue] = []
    for topic in sorted(topics):
        with contextlib.suppress(NoRoute):
            found += cluster.queues([topic])
    return [queue for queue in found if not options.assigned or queue in options.assigned]


def find_queues_that_remain(
    options: ReadOptions, cluster: Cluster, known: Mapping[MessageQueue, int], reported: set[str] | None = None
) -> tuple[list[MessageQueue], set[MessageQueue]]:
    """While a stream runs: the queues to read, and those of `known` whose broker is away.

    A queue that has vanished is a loss, not a wrong option. `reported` holds the losses of earlier triggers: with
    failOnDataLoss=false each is logged once, and again only if it comes back and vanishes again.
    """
    reported = set() if reported is None else reported
    topics = set(options.topics)
    if options.assigned:
        topics = {queue.topic for queue in options.assigned}
    elif options.pattern is not None:
        topics = set(cluster.topics_like(options.pattern))
    found: list[MessageQueue] = []
    unknown: dict[str, NoRoute] = {}
    for topic in sorted(topics):
        try:
            found += cluster.queues([topic])
        except NoRoute as error:
            unknown[topic] = error
    if options.assigned:
        found = [queue for queue in found if queue in options.assigned]
    missing = set(known) - set(found)
    wanted = {queue for queue in missing if _is_wanted(options, queue)}
    gone = (missing - wanted) | cluster.lost(
        wanted, [queue for queue in wanted if where(queue, known[queue]) in reported]
    )
    away = missing - gone
    lost = {
        f"topic {topic}": f"it is gone: {error}"
        for topic, error in unknown.items()
        if all(queue.topic != topic for queue in away)
    }
    for queue in sorted(gone):
        lost[where(queue, known[queue])] = "the queue is gone" if queue in wanted else _NOT_NAMED
    reported.intersection_update(lost)
    for place in [place for place in lost if place not in reported]:
        report_loss(options.fail_on_data_loss, place, lost[place])
        reported.add(place)
    return found, away


def _is_wanted(options: ReadOptions, queue: MessageQueue) -> bool:
    """Whether the options name this queue of the checkpoint."""
    if options.assigned:
        return queue in options.assigned
    if options.pattern is not None:
        return re.fullmatch(options.pattern, queue.topic) is not None
    return queue.topic in options.topics


def starting_offsets(options: ReadOptions, cluster: Cluster, queues: Sequence[MessageQueue]) -> Offsets:
    """Where reading starts; an offset outside of its queue is a loss."""
    low, high = cluster.min_offsets(queues), cluster.max_offsets(queues)
    position = options.starting
    if position.kind is PositionKind.EARLIEST:
        return low
    if position.kind is PositionKind.LATEST:
        return high
    if position.kind in (PositionKind.TIME, PositionKind.TIMES):
        times_ms = _times(position, queues, "startingOffsetsByTimestamp")
        found = exact_offsets(cluster, options.pull_group, times_ms, low, high)
        return {queue: _started(options, position, queue, found[queue], high[queue]) for queue in queues}
    if position.kind is PositionKind.GROUP:
        assert options.consumer_group is not None
        master = Cluster(options.cluster, waits=True)
        given = master.committed(options.consumer_group, queues)
        given = {queue: given.get(queue, EARLIEST) for queue in queues}
    else:
        given = _numbers(position, queues, "startingOffsets")
    return {queue: _inside(options, queue, given[queue], low[queue], high[queue]) for queue in queues}


def ending_offsets(options: ReadOptions, cluster: Cluster, queues: Sequence[MessageQueue]) -> Offsets:
    """Where a batch ends."""
    high = cluster.max_offsets(queues)
    position = options.ending
    if position.kind is PositionKind.LATEST:
        return high
    if position.kind in (PositionKind.TIME, PositionKind.TIMES):
        times_ms = _times(position, queues, "endingOffsetsByTimestamp")
        return exact_offsets(cluster, options.pull_group, times_ms, cluster.min_offsets(queues), high)
    ends = {}
    for queue, number in _numbers(position, queues, "endingOffsets").items():
        if number > high[queue]:
            what = f"the queue ends at {high[queue]}, before the ending offset"
            report_loss(options.fail_on_data_loss, where(queue, number), what)
        ends[queue] = high[queue] if number == LATEST else min(number, high[queue])
    return ends


def _started(options: ReadOptions, position: Position, queue: MessageQueue, found: int, high: int) -> int:
    if found < high or options.no_match_is_latest:
        return found
    time_ms = position.numbers.get(queue, position.time_ms)
    hint = "give an earlier time, or startingOffsetsByTimestampStrategy=latest"
    raise BadOption(f"{where(queue)} has no message stored at or after {time_ms} ms: {hint}")


def _inside(options: ReadOptions, queue: MessageQueue, number: int, low: int, high: int) -> int:
    if number in (EARLIEST, LATEST):
        return low if number == EARLIEST else high
    if low <= number <= high:
        return number
    what = "the messages have expired" if number < low else "this offset does not exist yet"
    report_loss(options.fail_on_data_loss, where(queue, number), f"the queue holds offsets {low} to {high}, {what}")
    return min(max(number, low), high)


def _times(position: Position, queues: Sequence[MessageQueue], option: str) -> dict[MessageQueue, int]:
    if position.kind is PositionKind.TIME:
        return dict.fromkeys(queues, position.time_ms)
    return _numbers(position, queues, option)


def _numbers(position: Position, queues: Sequence[MessageQueue], option: str) -> Offsets:
    """The given numbers; BadOption unless they name exactly the queues that are read."""
    unknown = sorted(set(position.numbers) - set(queues))
    if unknown:
        raise BadOption(f"{option}: {where(unknown[0])} is not read here; the queues are {_shown(queues)}")
    missing = sorted(set(queues) - set(position.numbers))
    if missing:
        raise BadOption(f"{option} lacks {where(missing[0])}: name all queues, with -2 for earliest")
    return {queue: position.numbers[queue] for queue in queues}


def _shown(queues) -> str:
    by_topic: dict[tuple[str, str], list[str]] = {}
    for queue in sorted(queues):
        by_topic.setdefault((queue.topic, queue.broker_name), []).append(str(queue.queue_id))
    return "; ".join(f"topic {t} broker {b} queues {','.join(ids)}" for (t, b), ids in by_topic.items()) or "none"
