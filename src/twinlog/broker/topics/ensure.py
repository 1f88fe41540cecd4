"""The configuration of a topic or group, created when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinlog.broker.topics.name_rules import group_name_problem
from twinlog.settings.broker import TOPIC_QUEUES_MAX
from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig
from twinlog.wire.codes import ResponseCode
from twinlog.wire.values.topic_bits import READ_WRITE

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext


def ensure_topic(
    ctx: BrokerContext, name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0, order: bool = False
) -> TopicConfig:
    """The topic's configuration; created with these values, saved and announced when there was none."""
    config = ctx.topics.get(name)
    if config is None:
        queues = max(0, min(queues, TOPIC_QUEUES_MAX))
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=sys_flag,
            order=order,
        )
        ctx.topics.put(name, config, ctx.clock_ms())
        ctx.notify_topic_changed((name,))
    return config


def ensure_group(ctx: BrokerContext, name: str) -> SubscriptionGroupConfig | None:
    """The group's configuration; None when there is none and it may not be created.

    RequestRefused when clients have created as many groups as they may.
    """
    config = ctx.groups.get(name)
    if config is None and ctx.settings.groups_auto_created and group_name_problem(name) is None:
        most = ctx.settings.auto_groups_max
        if not ctx.auto_groups.has_room(most):
            what, advice = f"group {name} does not exist and is not created", "create it with updateSubGroup"
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            raise ctx.limits.refuse(code, what, "maxAutoCreatedGroups", most, f"{advice}, or raise it", {})
        config = SubscriptionGroupConfig(group_name=name)
        ctx.groups.put(name, config, ctx.clock_ms())
        ctx.auto_groups.add(name)
    return config
