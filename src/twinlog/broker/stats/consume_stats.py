"""The lag of groups, computed from tables and queues; `stats_handlers` answers with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from twinlog.broker.topics.topic_limits import Turns, check_walk, is_walkable
from twinlog.wire.bodies import ConsumeStats, MessageQueue, OffsetWrapper, TopicOffset, TopicStats
from twinlog.wire.numbers import LONG_MAX

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.wire.bodies import TopicConfig


async def topic_stats(ctx: BrokerContext, config: TopicConfig, turns: Turns) -> TopicStats:
    """Bounds and last write of every queue of a topic."""
    topic = config.topic_name
    table: dict[MessageQueue, TopicOffset] = {}
    count = max(config.read_queue_nums, config.write_queue_nums)
    check_walk(topic, count)
    async for part in turns.slices(count):
        for queue_id in part:
            low, high = max(ctx.store.min_offset(topic, queue_id), 0), ctx.store.max_offset(topic, queue_id)
            written_ms = ctx.store.store_time_of(topic, queue_id, high - 1) if high > 0 else 0
            table[ctx.queue(topic, queue_id)] = TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=max(written_ms, 0)
            )
    return TopicStats(offset_table=table, topic_put_tps=ctx.stats.put_tps(topic, ctx.clock_ms()))


async def consume_stats(ctx: BrokerContext, group: str, topics: list[str], turns: Turns) -> ConsumeStats:
    """Offsets of a group in these topics; while it is online, only those that it subscribes to."""
    stats = ConsumeStats(offset_table={})
    for config in consumed_topics(ctx, group, topics):
        check_walk(config.topic_name, config.read_queue_nums)
        one = await topic_consume_stats(ctx, group, config, turns)
        stats.offset_table.update(one.offset_table)
        stats.consume_tps += one.consume_tps
    return stats


async def all_consume_stats(ctx: BrokerContext, turns: Turns, *, orderly_only: bool) -> dict[str, list[ConsumeStats]]:
    """Offsets of every group in every topic; topics with too many queues are left out."""
    found: dict[str, list[ConsumeStats]] = {}
    for group, topics in sorted(ctx.offsets.topics_by_group().items()):
        if group not in ctx.groups:
            continue
        stats = [
            await topic_consume_stats(ctx, group, config, turns)
            for config in list(consumed_topics(ctx, group, sorted(topics)))
            if (config.order or not orderly_only) and is_walkable(config.read_queue_nums)
        ]
        if stats:
            found[group] = stats
    return found


def consumed_topics(ctx: BrokerContext, group: str, topics: list[str]) -> Iterator[TopicConfig]:
    online = ctx.clients.consumers.get(group)
    for topic in topics:
        config = ctx.topics.get(topic)
        if config is None or (online is not None and online.subscriptions and topic not in online.subscriptions):
            continue
        yield config


async def topic_consume_stats(ctx: BrokerContext, group: str, config: TopicConfig, turns: Turns) -> ConsumeStats:
    """Offsets of a group in one topic."""
    topic = config.topic_name
    table: dict[MessageQueue, OffsetWrapper] = {}
    async for part in turns.slices(config.read_queue_nums):
        for queue_id in part:
            consumed = max(ctx.offsets.get(group, topic, queue_id) or 0, 0)
            pulled = ctx.offsets.pull_offset(group, topic, queue_id) or 0
            seen_ms = ctx.store.store_time_of(topic, queue_id, consumed - 1) if consumed > 0 else 0
            table[ctx.queue(topic, queue_id)] = OffsetWrapper(
                broker_offset=ctx.store.max_offset(topic, queue_id),
                consumer_offset=consumed,
                pull_offset=max(pulled, consumed),
                last_timestamp=max(seen_ms, 0),
            )
    return ConsumeStats(offset_table=table, consume_tps=ctx.stats.get_tps(topic, group, ctx.clock_ms()))


def lag(stats: ConsumeStats) -> int:
    """Messages stored and not yet consumed."""
    return sum(row.broker_offset - row.consumer_offset for row in stats.offset_table.values())


def inflight(stats: ConsumeStats) -> int:
    """Messages pulled and not yet consumed."""
    return sum(row.pull_offset - row.consumer_offset for row in stats.offset_table.values())


def lowest_offsets(ctx: BrokerContext, topic: str, without_groups: set[str]) -> dict[int, int]:
    """Per queue the lowest offset of a group, of those that are still in the queue."""
    lowest: dict[int, int] = {}
    for group in sorted(ctx.offsets.groups_of(topic) - without_groups):
        for queue_id, offset in ctx.offsets.of(group, topic).items():
            if offset >= ctx.store.min_offset(topic, queue_id):
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
    return lowest


def correction_offsets(ctx: BrokerContext, topic: str, compare_group: str, without_groups: set[str]) -> dict[int, int]:
    """Per queue the lowest offset of the other groups; LONG_MAX where `compare_group` is behind all of them."""
    lowest = lowest_offsets(ctx, topic, without_groups)
    for queue_id, offset in ctx.offsets.of(compare_group, topic).items():
        known = lowest.get(queue_id, LONG_MAX)
        lowest[queue_id] = LONG_MAX if known > offset else known
    return lowest
