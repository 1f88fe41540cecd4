"""The checks of a pull before the store is read, and the filter that it reads through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.base.system_names import retry_topic
from twinlog.broker.topics.ensure import ensure_group
from twinlog.net.errors import RequestRefused
from twinlog.store.queues.unit_filters import TagCodes
from twinlog.wire.codes import FAQ_REMARK, ResponseCode
from twinlog.wire.java_text import tags_code
from twinlog.wire.values.filter_expression import is_tag_type, parse_tags
from twinlog.wire.values.sys_flag import PULL_SUBSCRIPTION
from twinlog.wire.values.topic_bits import READ

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.broker.pulls.filters.message_filter import MessageFilter
    from twinlog.broker.pulls.pull import PullFields
    from twinlog.net.connection import Request
    from twinlog.store.dispatch import DispatchRequest
    from twinlog.store.queues.read import Accept, AcceptRecord
    from twinlog.wire.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig

# forbiddenType of an answer with code 16
BY_BROKER, BY_GROUP, BY_TOPIC, BY_BROADCAST, BY_SUBSCRIPTION = range(1, 6)


class PullRefused(RequestRefused):
    """A pull that is answered with an error; the answer always has extFields, as the Java client expects."""

    def __init__(self, code: int, remark: str, forbidden: int | None = None) -> None:
        super().__init__(code, remark, {} if forbidden is None else {"forbiddenType": str(forbidden)})


@dataclass(slots=True)
class PullPlan:
    """An accepted pull: whose it is, and which messages it wants."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    accept: Accept | None = None
    accept_record: AcceptRecord | None = None
    wakes: Callable[[DispatchRequest], bool] | None = None


def check_pull(ctx: BrokerContext, request: Request, pull: PullFields) -> PullPlan:
    """The plan of a pull; PullRefused for the first check that fails, in Java's order."""
    settings = ctx.settings
    if not settings.permission & READ:
        remark = f"the broker[{settings.broker_ip1}] pulling message is forbidden"
        raise PullRefused(ResponseCode.NO_PERMISSION, remark, BY_BROKER)
    group_name, topic_name = pull.consumer_group, pull.topic
    group = ctx.groups.get(group_name) or ensure_group(ctx, group_name)
    if group is None:
        remark = f"subscription group [{group_name}] does not exist, {FAQ_REMARK}"
        raise PullRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group.consume_enable:
        raise PullRefused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}", BY_GROUP)
    topic = ctx.topics.get(topic_name)
    if topic is None:
        raise PullRefused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please! {FAQ_REMARK}"
        )
    if not topic.perm & READ:
        remark = f"the topic[{topic_name}] pulling message is forbidden"
        raise PullRefused(ResponseCode.NO_PERMISSION, remark, BY_TOPIC)
    if not 0 <= pull.queue_id < topic.read_queue_nums:
        remark = (
            f"queueId[{pull.queue_id}] is illegal, topic:[{topic_name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{request.connection.peer_text}]"
        )
        raise PullRefused(ResponseCode.INVALID_PARAMETER, remark)
    if pull.sys_flag & PULL_SUBSCRIPTION:
        return _filter_in_request(ctx, pull, PullPlan(topic, group))
    return _filter_of_heartbeat(ctx, pull, PullPlan(topic, group))


def _filter_in_request(ctx: BrokerContext, pull: PullFields, plan: PullPlan) -> PullPlan:
    if is_tag_type(pull.expression_type):
        expression = pull.subscription
        tags = parse_tags(expression)
        if tags is not None:
            return want_tags(plan, {tags_code(tag) for tag in tags})
        if expression is not None and "|" in expression:  # separators without a tag between them
            raise PullRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        return plan
    _check_kind(ctx, pull.expression_type)
    filters = ctx.consumer_filters.of_request(pull.consumer_group, pull.topic, pull.subscription or "")
    return _want(plan, filters)


def _filter_of_heartbeat(ctx: BrokerContext, pull: PullFields, plan: PullPlan) -> PullPlan:
    online = ctx.clients.consumers.get(pull.consumer_group)
    if online is None:
        raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ_REMARK}")
    if online.is_broadcasting and not plan.group.consume_broadcast_enable:
        remark = f"the consumer group[{pull.consumer_group}] can not consume by broadcast way"
        raise PullRefused(ResponseCode.NO_PERMISSION, remark, BY_BROADCAST)
    if not ctx.groups.may_read(pull.consumer_group, pull.topic):
        remark = f"the consumer group[{pull.consumer_group}] is forbidden for topic[{pull.topic}]"
        raise PullRefused(ResponseCode.NO_PERMISSION, remark, BY_SUBSCRIPTION)
    subscription = online.subscriptions.get(pull.topic)
    if subscription is None:
        raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ_REMARK}")
    if subscription.sub_version < pull.sub_version:
        raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if is_tag_type(subscription.expression_type):
        return plan if matches_all(subscription) else want_tags(plan, set(subscription.code_set))
    return _want_registered(ctx, pull, plan, subscription)


def _want_registered(ctx: BrokerContext, pull: PullFields, plan: PullPlan, subscription: SubscriptionData) -> PullPlan:
    known = ctx.filters.get(pull.topic, pull.consumer_group)
    if known is None and pull.topic != retry_topic(pull.consumer_group):
        remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
        raise PullRefused(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
    if known is not None and known.client_version < pull.sub_version:
        raise PullRefused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    _check_kind(ctx, subscription.expression_type)
    return _want(plan, ctx.consumer_filters.of_group(pull.consumer_group, pull.topic))


def _want(plan: PullPlan, wanted: MessageFilter | None) -> PullPlan:
    if wanted is not None:
        plan.accept, plan.accept_record, plan.wakes = wanted.accept, wanted.accept_record, wanted.wakes
    return plan


def _check_kind(ctx: BrokerContext, expression_type: str | None) -> None:
    if not ctx.settings.property_filter:
        remark = f"The broker does not support consumer to filter message by {expression_type}"
        raise PullRefused(ResponseCode.SYSTEM_ERROR, remark)


def want_tags(plan: PullPlan, codes: set[int]) -> PullPlan:
    """`plan` for messages with one of these tag hashes; a message without a known hash passes."""
    plan.accept = TagCodes(codes)
    plan.wakes = lambda message: message.tags_code in codes
    return plan


def matches_all(subscription: SubscriptionData) -> bool:
    return subscription.class_filter_mode or subscription.sub_string == "*"
