"""Topics that are created by a send, and those that every broker has from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.base import system_names
from twinlog.broker.topics.ensure import ensure_topic
from twinlog.broker.topics.topic_limits import check_queues
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.codes import ResponseCode
from twinlog.wire.values.topic_bits import INHERIT, READ_WRITE, UNIT, UNIT_SUBSCRIPTION

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.metadata.groups import GroupTable
    from twinlog.metadata.topics import TopicTable
    from twinlog.settings.broker import BrokerSettings
    from twinlog.settings.store import StoreSettings


def seed_tables(topics: TopicTable, groups: GroupTable, settings: BrokerSettings, store: StoreSettings) -> None:
    """Put the topics and groups that every broker has into new tables; rows from the files replace them later."""

    def seed(name: str, queues: int, perm: int = READ_WRITE) -> None:
        topics.seed(name, TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm))

    seed(system_names.SELF_TEST_TOPIC, 1)
    if settings.topics_auto_created:
        seed(system_names.AUTO_CREATE_TOPIC, settings.default_topic_queues, READ_WRITE | INHERIT)
    seed(system_names.BENCHMARK_TOPIC, 1024)
    seed(settings.cluster_name, 16, READ_WRITE | INHERIT if settings.cluster_topic else INHERIT)
    seed(settings.broker_name, 1, READ_WRITE | INHERIT if settings.broker_topic else INHERIT)
    seed(system_names.OFFSET_MOVED_TOPIC, 1)
    seed(system_names.SCHEDULE_TOPIC, len(store.delay_levels.split()))
    if settings.trace_topic:
        seed(settings.trace_topic_name, 1)
    seed(system_names.reply_topic(settings.cluster_name), 1)
    seed(f"rmq_sys_REVIVE_LOG_{settings.cluster_name}", 8)
    seed(f"rmq_sys_SYNC_BROKER_MEMBER_{settings.broker_name}", 1, INHERIT)
    seed(system_names.HALF_TOPIC, 1)
    seed(system_names.OP_TOPIC, 1)
    if store.timer_enabled:
        seed(system_names.TIMER_TOPIC, 1)
    for group in system_names.SYSTEM_GROUPS:
        groups.seed(group, SubscriptionGroupConfig(group_name=group))


def create_for_send(
    ctx: BrokerContext, topic: str, *, template: str | None, queues: int, unit_mode: bool = False
) -> TopicConfig | None:
    """The configuration of a topic that a producer named; None when it neither exists nor may be created."""
    config = ctx.topics.get(topic)
    if config is not None:
        return config
    is_retry = topic.startswith(system_names.RETRY_PREFIX)
    config = _inherited(ctx, topic, template, queues, _unit_flags(unit_mode, is_retry))
    if config is None and not is_retry:
        return None
    if not is_retry or topic[len(system_names.RETRY_PREFIX) :] not in ctx.groups:  # the limit of groups covers those
        _check_room(ctx, topic)
        ctx.auto_topics.add(topic)
    if config is None:
        return ensure_topic(ctx, topic, 1, READ_WRITE, UNIT_SUBSCRIPTION if unit_mode else 0)
    ctx.topics.put(topic, config, ctx.clock_ms())
    ctx.notify_topic_changed((topic,))
    return config


def _check_room(ctx: BrokerContext, topic: str) -> None:
    most = ctx.settings.auto_topics_max
    if not ctx.auto_topics.has_room(most):
        what, advice = f"topic {topic} does not exist and is not created", "create it with updateTopic, or raise it"
        raise ctx.limits.refuse(ResponseCode.TOPIC_NOT_EXIST, what, "maxAutoCreatedTopics", most, advice)


def _inherited(
    ctx: BrokerContext, topic: str, template_name: str | None, queues: int, sys_flag: int
) -> TopicConfig | None:
    template = ctx.topics.get(template_name) if template_name is not None else None
    if template is None or not template.perm & INHERIT:
        return None
    if template_name == system_names.AUTO_CREATE_TOPIC and not ctx.settings.topics_auto_created:
        return None
    check_queues(ctx, f"topic {topic} with defaultTopicQueueNums {queues}", min(queues, 0))
    queues = max(0, min(queues, template.write_queue_nums, ctx.settings.topic_queues_max))
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=template.perm & ~INHERIT,
        topic_filter_type=template.topic_filter_type,
        topic_sys_flag=sys_flag,
    )


def _unit_flags(unit_mode: bool, is_retry: bool) -> int:
    if not unit_mode:
        return 0
    return UNIT_SUBSCRIPTION if is_retry else UNIT
