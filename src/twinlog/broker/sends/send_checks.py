"""The checks of a send before anything is stored: the header, the topic, the queue.

Each check raises RequestRefused with the code and remark that Java answers, in Java's order.
"""

from __future__ import annotations

import random
from datetime import datetime
from typing import TYPE_CHECKING

from twinlog.base.system_names import SEND_FORBIDDEN_TOPICS
from twinlog.broker.topics.name_rules import topic_name_problem
from twinlog.broker.topics.topic_creation import create_for_send
from twinlog.net.errors import RequestRefused
from twinlog.wire import properties as names
from twinlog.wire.codes import FAQ_REMARK, VERSION_MAX_RECONSUME, RequestCode, ResponseCode
from twinlog.wire.fields import camel, decode_fields
from twinlog.wire.headers import SendHeader, SendHeaderV2
from twinlog.wire.values.topic_bits import WRITE, permission_text

if TYPE_CHECKING:
    from twinlog.broker.context import BrokerContext
    from twinlog.net.connection import Request
    from twinlog.settings.broker import BrokerSettings
    from twinlog.wire.bodies import SubscriptionGroupConfig, TopicConfig

TOPIC_LENGTH_IN_BATCH_MAX = 127
_SHORT_NAMES = dict(zip(SendHeader.__dataclass_fields__, "abcdefghijklmn", strict=True))
_REQUIRED = (
    "producer_group",
    "topic",
    "default_topic",
    "default_topic_queue_nums",
    "queue_id",
    "sys_flag",
    "born_timestamp",
    "flag",
)


def read_header(request: Request) -> SendHeader | SendHeaderV2:
    """The send header in either form; refused when a required member is missing or not a number."""
    long_form = request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    header = decode_fields(SendHeader if long_form else SendHeaderV2, request.fields)
    fields = request.fields or {}
    for attribute in _REQUIRED:
        if getattr(header, attribute) is None:
            name = camel(attribute) if long_form else _SHORT_NAMES[attribute]
            given = fields.get(name)
            bits = 64 if attribute == "born_timestamp" else 32
            problem = f"{name}={given!r} is not a number of {bits} bits"
            if given is None:
                problem = f"the custom field <{name}> is null"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, problem)
    return header


def check_send(ctx: BrokerContext, request: Request, header: SendHeader | SendHeaderV2) -> TopicConfig:
    """The topic that `header` names, created if allowed; RequestRefused for the first check that fails."""
    settings = ctx.settings
    topic, queue_id, queues = header.topic, header.queue_id, header.default_topic_queue_nums
    assert topic is not None and queue_id is not None and queues is not None, "checked by read_header"
    if ctx.wall_ms() < settings.send_accepted_from_ms:
        until = datetime.fromtimestamp(settings.send_accepted_from_ms / 1000)
        text = f"{until:%Y-%m-%d %H:%M:%S},{until.microsecond // 1000:03d}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text}")
    if not settings.permission & WRITE and ctx.topics.is_order_topic(topic):
        remark = f"the broker[{settings.broker_ip1}] sending message is forbidden"
        raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
    problem = topic_name_problem(topic)
    if problem is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, problem)
    if topic in SEND_FORBIDDEN_TOPICS:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    config = create_for_send(ctx, topic, template=header.default_topic, queues=queues, unit_mode=bool(header.unit_mode))
    if config is None:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ_REMARK}")
    if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        remark = f"request queueId[{queue_id}] is illegal, {describe(config)} Producer: {request.connection.peer_text}"
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
    return config


def choose_queue(queue_id: int, config: TopicConfig) -> int:
    """The queue asked for, or a random one when the producer leaves the choice to the broker."""
    if queue_id >= 0:
        return queue_id
    if config.write_queue_nums <= 0:
        remark = f"topic[{config.topic_name}] has {config.write_queue_nums} write queues; raise writeQueueNums"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
    return random.randrange(config.write_queue_nums)


def retries_max(version: int, requested: int | None, group: SubscriptionGroupConfig) -> int:
    """How many retries a message gets: what a consumer of this version asks for, or the group's setting."""
    if version >= VERSION_MAX_RECONSUME and requested is not None:
        return requested
    return group.retry_max_times


def region_and_trace(settings: BrokerSettings) -> dict[str, str]:
    """What every send adds to its message and to its answer; Java's client needs both members in each answer."""
    return {names.MSG_REGION: settings.region_id, names.TRACE_ON: "true" if settings.trace_on else "false"}


def own_properties(settings: BrokerSettings) -> dict[str, str]:
    """The properties that the broker adds to every message, in their order."""
    return {**region_and_trace(settings), names.CLUSTER: settings.cluster_name}


def describe(config: TopicConfig) -> str:
    """A topic's configuration as Java prints it into remarks."""
    perm = permission_text(config.perm)
    attributes = ", ".join(f"{key}={value}" for key, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )
