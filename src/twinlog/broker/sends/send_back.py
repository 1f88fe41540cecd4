"""Messages that a consumer could not process (36): stored again for a retry, or as dead letters."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from twinlog.base.system_names import dlq_topic, retry_topic
from twinlog.broker.sends.copy_budget import check_copy
from twinlog.broker.sends.parking import redelivery
from twinlog.broker.sends.send_checks import retries_max
from twinlog.broker.topics.ensure import ensure_group, ensure_topic
from twinlog.net.access import check_topic
from twinlog.net.errors import RequestRefused
from twinlog.security.request_needs import SUB
from twinlog.wire import properties as names
from twinlog.wire.codes import FAQ_REMARK, RequestCode, ResponseCode
from twinlog.wire.fields import decode_fields
from twinlog.wire.headers import SendBackHeader
from twinlog.wire.values.topic_bits import UNIT_SUBSCRIPTION, WRITE

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Handler, Request
    from twinlog.store.log.append import Draft
    from twinlog.wire.bodies import SubscriptionGroupConfig
    from twinlog.wire.command import Command
    from twinlog.wire.message import Message

FIRST_RETRY_LEVEL = 3
DEAD_LETTER_QUEUES = 1


def handlers(ctx: BrokerContext) -> dict[int, Handler]:
    return {RequestCode.CONSUMER_SEND_MSG_BACK: SendBackHandler(ctx).handle}


class SendBackHandler:
    """Stores a message again for the group that could not process it."""

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx

    def handle(self, request: Request) -> Command:
        ctx = self._ctx
        if not ctx.is_master:
            return request.reply(ResponseCode.SYSTEM_BUSY, ctx.busy_remark)
        header = decode_fields(SendBackHeader, request.fields)
        name = header.group or ""
        group = ensure_group(ctx, name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ_REMARK}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not ctx.settings.permission & WRITE:
            remark = f"the broker[{ctx.settings.address.replace(':', '-')}] sending message is forbidden"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return request.reply()
        retry = ensure_topic(
            ctx, retry_topic(name), group.retry_queue_nums, sys_flag=UNIT_SUBSCRIPTION if header.unit_mode else 0
        )
        if not retry.perm & WRITE:
            remark = f"the topic[{retry.topic_name}] sending message is forbidden"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
        check_copy(ctx, request.connection, f"another message that group {name} sends back")
        offset = header.offset
        message = ctx.store.message_at(offset) if offset is not None and offset >= 0 else None
        if message is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        check_topic(ctx.gate, request, message.topic, SUB)
        limit = retries_max(request.version, header.max_reconsume_times, group)
        level = header.delay_level or 0
        source = message.properties.get(names.RETRY_TOPIC) or message.topic
        if message.reconsume_times >= limit or level < 0:
            ensure_topic(ctx, dlq_topic(name), DEAD_LETTER_QUEUES)
            draft = sent_back(message, dlq_topic(name), 0, 0)
        else:
            draft = retried(message, name, group, level)
        stored = ctx.put(draft)
        if not stored.ok:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, stored.status.name)
        ctx.copy_budget.pay(request.connection.peer[0], message.store_size)
        counter = ctx.stats.send_backs(source, name)
        counter.count += 1
        return request.reply()


def retried(message: Message, group: str, config: SubscriptionGroupConfig, level: int) -> Draft:
    """The message for the group's retry topic; the delay grows with each retry unless the consumer gives a level."""
    queue_id = random.randrange(config.retry_queue_nums)
    return sent_back(message, retry_topic(group), queue_id, level or FIRST_RETRY_LEVEL + message.reconsume_times)


def sent_back(message: Message, topic: str, queue_id: int, level: int) -> Draft:
    """The message as it is stored for another try, or as a dead letter."""
    pairs = dict(message.properties)
    pairs.setdefault(names.RETRY_TOPIC, message.topic)
    pairs[names.WAIT] = "false"
    pairs[names.DELAY] = str(level)
    pairs[names.ORIGIN_MESSAGE_ID] = pairs.get(names.ORIGIN_MESSAGE_ID) or message.offset_message_id
    draft = redelivery(message, topic, queue_id, pairs)
    draft.reconsume_times += 1
    return draft
