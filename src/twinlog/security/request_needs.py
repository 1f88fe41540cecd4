"""Which permissions a request needs: resources, and for each the actions of which one must be allowed.

The table is RocketMQ 5.5.0's. Where Java checks nothing, though a request reads or changes something that is not the
caller's, this one is stricter:

    codes that Java does not list (25 to change settings, 200 to change a group, ...)    Update or Get on the cluster
    several topics or groups in a body (18, 225)                                         Create on each of them
    a retry topic                                                                        the group of that topic
    a message by its id, without its topic (33)                                          Get on the cluster
    a reply that names another topic than the cluster's for replies (324, 325)           Pub on that topic
    a message by its place in the log (36, 37, 309, 323)                                 also on its own topic
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from twinlog.base.system_names import RETRY_PREFIX, reply_topic
from twinlog.security.policies import Resource
from twinlog.wire.bodies import (
    CheckClientBody,
    GroupConfigList,
    HeartbeatData,
    LockBatchRequest,
    SubscriptionGroupConfig,
    TopicConfigList,
    decode_body,
)
from twinlog.wire.codes import RequestCode as Code
from twinlog.wire.twinlog_codes import TwinlogCode

Fields = Mapping[str, str]
Need = tuple[Resource, tuple[str, ...]]

PUB, SUB, CREATE, UPDATE, DELETE, GET = ("Pub",), ("Sub",), ("Create",), ("Update",), ("Delete",), ("Get",)
SUB_OR_GET, SUB_OR_UPDATE = ("Sub", "Get"), ("Sub", "Update")

BETWEEN_BROKERS = frozenset(
    {
        TwinlogCode.REPLICA_HELLO,
        TwinlogCode.LOG_DIGESTS,
        TwinlogCode.METADATA_CHANGES,
        TwinlogCode.OFFSETS_CARRIED_BACK,
        TwinlogCode.ACCOUNTS,
        TwinlogCode.PROVE_SECRET,
    }
)
"""What only brokers ask each other: a super account is needed, whatever else is switched off."""

_REPLIES: dict[int, str] = {Code.SEND_REPLY_MESSAGE: "topic", Code.SEND_REPLY_MESSAGE_V2: "b"}


@dataclass(frozen=True, slots=True)
class _ByFields:
    """What each resource in the named fields needs; without any of them, the cluster."""

    actions: tuple[str, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    separators: str = ""  # between several names in one field

    def __call__(self, fields: Fields, cluster: str) -> list[Need]:
        needs = [(topic_or_group(name), self.actions) for name in self._names(fields, self.topics)]
        needs += [(group(name), self.actions) for name in self._names(fields, self.groups)]
        needs += [(Resource("Cluster", name), self.actions) for name in self._names(fields, self.clusters)]
        return needs or [(Resource("Cluster", cluster), self.actions)]

    def _names(self, fields: Fields, keys: tuple[str, ...]) -> Iterable[str]:
        for key in keys:
            text = fields.get(key)
            if text is not None:
                for separator in self.separators:
                    text = text.replace(separator, "\0")
                yield from (name for name in text.split("\0") if name or not self.separators)


_T, _G = ("topic",), ("consumerGroup",)
_BY_FIELDS = {
    Code.SEND_MESSAGE: _ByFields(PUB, _T),
    Code.SEND_MESSAGE_V2: _ByFields(PUB, ("b",)),
    Code.SEND_BATCH_MESSAGE: _ByFields(PUB, ("b",)),
    Code.RECALL_MESSAGE: _ByFields(PUB, _T),
    Code.CONSUMER_SEND_MSG_BACK: _ByFields(SUB, groups=("group",)),
    Code.PULL_MESSAGE: _ByFields(SUB, _T, _G),
    Code.LITE_PULL_MESSAGE: _ByFields(SUB, _T, _G),
    Code.QUERY_MESSAGE: _ByFields(SUB_OR_GET, _T),
    Code.GET_CONSUMER_LIST_BY_GROUP: _ByFields(SUB_OR_GET, groups=_G),
    Code.QUERY_CONSUMER_OFFSET: _ByFields(SUB_OR_GET, _T, _G),
    Code.UPDATE_CONSUMER_OFFSET: _ByFields(SUB_OR_UPDATE, _T, _G),
    Code.UPDATE_AND_CREATE_TOPIC: _ByFields(CREATE, _T),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _ByFields(GET, _T),
    Code.GET_MAX_OFFSET: _ByFields(GET, _T),
    Code.GET_MIN_OFFSET: _ByFields(GET, _T),
    Code.GET_EARLIEST_MSG_STORETIME: _ByFields(GET, _T),
    Code.VIEW_MESSAGE_BY_ID: _ByFields(GET, _T),
    Code.GET_TOPIC_STATS_INFO: _ByFields(GET, _T),
    Code.GET_CONSUMER_CONNECTION_LIST: _ByFields(GET, groups=_G),
    Code.DELETE_SUBSCRIPTIONGROUP: _ByFields(DELETE, groups=("groupName",)),
    Code.GET_CONSUME_STATS: _ByFields(GET, ("topic", "topicList"), _G, separators=";"),
    Code.DELETE_TOPIC_IN_BROKER: _ByFields(DELETE, _T),
    Code.DELETE_TOPIC_IN_NAMESRV: _ByFields(UPDATE, clusters=("clusterName",)),
    Code.REGISTER_BROKER: _ByFields(UPDATE, clusters=("clusterName",)),
    Code.UNREGISTER_BROKER: _ByFields(UPDATE, clusters=("clusterName",)),
    Code.BROKER_HEARTBEAT: _ByFields(UPDATE, clusters=("clusterName",)),
    Code.QUERY_DATA_VERSION: _ByFields(GET, clusters=("clusterName",)),
    Code.GET_BROKER_MEMBER_GROUP: _ByFields(GET, clusters=("clusterName",)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _ByFields(UPDATE, _T, ("group",)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _ByFields(GET, _T, ("group",)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _ByFields(GET, _T),
    Code.QUERY_CONSUME_TIME_SPAN: _ByFields(GET, _T, ("group",)),
    Code.GET_CONSUMER_RUNNING_INFO: _ByFields(GET, groups=_G),
    Code.QUERY_CORRECTION_OFFSET: _ByFields(GET, _T, ("filterGroups", "compareGroup"), separators=","),
    Code.CONSUME_MESSAGE_DIRECTLY: _ByFields(SUB, _T, _G),
    Code.CLONE_GROUP_OFFSET: _ByFields(UPDATE, _T, ("srcGroup", "destGroup")),
    Code.QUERY_CONSUME_QUEUE: _ByFields(GET, _T, _G),
    Code.RESUME_CHECK_HALF_MESSAGE: _ByFields(UPDATE, _T),
    Code.QUERY_TOPICS_BY_CONSUMER: _ByFields(GET, groups=("group",)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _ByFields(GET, _T, ("group",)),
    Code.GET_TOPIC_CONFIG: _ByFields(GET, _T),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _ByFields(GET, groups=("group",)),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _ByFields(UPDATE, _T, ("group",)),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _ByFields(GET, _T),
}
_READING = frozenset(
    int(code) for code in (*Code, TwinlogCode.REPLICATION_STATUS) if code.name.startswith(("GET_", "QUERY_", "VIEW_"))
) | {TwinlogCode.REPLICATION_STATUS, Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL}


def needs_of(code: int, fields: Fields, body: bytes | None, cluster: str) -> list[Need]:
    """What a request needs; WireError for a body that cannot be read."""
    if (by_fields := _BY_FIELDS.get(code)) is not None:  # pyright: ignore[reportArgumentType, reportCallIssue]
        return by_fields(fields, cluster)
    if (by_body := _BY_BODY.get(code)) is not None:
        return by_body(fields, body)
    if (field := _REPLIES.get(code)) is not None:
        return _reply(fields.get(field, ""), cluster)
    return [(Resource("Cluster", cluster), GET if code in _READING else UPDATE)]


def topic_or_group(topic: str) -> Resource:
    """The resource behind a topic: a retry topic is a part of its group."""
    return group(topic) if topic.startswith(RETRY_PREFIX) else Resource("Topic", topic)


def group(name: str) -> Resource:
    return Resource("Group", name.removeprefix(RETRY_PREFIX))


def _reply(topic: str, cluster: str) -> list[Need]:
    """Any account may answer who asked it. A broker that stores replies stores them in the topic that they name."""
    return [] if topic == reply_topic(cluster) else [(topic_or_group(topic), PUB)]


# -- requests that name resources in their body -------------------------------------------------


def _route(fields: Fields, body: bytes | None) -> list[Need]:
    topic = fields.get("topic", "")
    return [(topic_or_group(topic), SUB_OR_GET if topic.startswith(RETRY_PREFIX) else ("Pub", "Sub", "Get"))]


def _end_transaction(fields: Fields, body: bytes | None) -> list[Need]:
    topic = fields.get("topic", "")  # clients up to 4.x do not name it
    return [(topic_or_group(topic), PUB)] if topic.strip() else []


def _heartbeat(fields: Fields, body: bytes | None) -> list[Need]:
    needs: dict[Resource, None] = {}
    for member in decode_body(HeartbeatData, body).consumer_data_set:
        needs[group(member.group_name)] = None
        needs.update({topic_or_group(one.topic): None for one in member.subscription_data_set})
    return [(resource, SUB) for resource in needs]


def _unregister(fields: Fields, body: bytes | None) -> list[Need]:
    name = fields.get("consumerGroup", "")
    return [(group(name), SUB)] if name.strip() else []


def _lock(fields: Fields, body: bytes | None) -> list[Need]:
    lock = decode_body(LockBatchRequest, body)
    needs = {group(lock.consumer_group): None, **{topic_or_group(queue.topic): None for queue in lock.mq_set}}
    return [(resource, SUB) for resource in needs]


def _check_client(fields: Fields, body: bytes | None) -> list[Need]:
    check = decode_body(CheckClientBody, body)
    needs = [(group(check.group), SUB)]
    if check.subscription_data is not None:
        needs.append((topic_or_group(check.subscription_data.topic), SUB))
    return needs


def _topics(fields: Fields, body: bytes | None) -> list[Need]:
    return [(topic_or_group(one.topic_name), CREATE) for one in decode_body(TopicConfigList, body).topic_config_list]


def _group(fields: Fields, body: bytes | None) -> list[Need]:
    return [(group(decode_body(SubscriptionGroupConfig, body).group_name), ("Create", "Update"))]


def _groups(fields: Fields, body: bytes | None) -> list[Need]:
    listed = decode_body(GroupConfigList, body).group_config_list
    return [(group(one.group_name), ("Create", "Update")) for one in listed]


_BY_BODY: dict[int, Callable[[Fields, bytes | None], list[Need]]] = {
    Code.GET_ROUTEINFO_BY_TOPIC: _route,
    Code.END_TRANSACTION: _end_transaction,
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregister,
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.CHECK_CLIENT_CONFIG: _check_client,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _topics,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups,
}
